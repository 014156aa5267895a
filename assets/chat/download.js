// Files from and to the server: exports are saved as it names them, imports are sent as they are.

import { ApiError } from "./api.js";
import { element } from "./element.js";

const BASE = "/api/chat/";

/** Throws ApiError. The browser shows it among its downloads. */
export async function saveFile(path) {
  const response = await reach(path, {});
  const url = URL.createObjectURL(await response.blob());
  element("a", { href: url, download: fileName(response) }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** Returns {num_imported, num_known, problems}; throws ApiError. */
export async function sendFile(path, file) {
  const headers = { "Content-Type": "application/octet-stream" };
  return (await reach(path, { method: "POST", headers, body: file })).json();
}

async function reach(path, options) {
  let response;
  try {
    response = await fetch(BASE + path, { credentials: "same-origin", ...options });
  } catch (error) {
    throw new ApiError(0, "offline", "The server cannot be reached.", { cause: String(error) });
  }
  if (response.ok) return response;
  const { error = {} } = await response.json().catch(() => ({}));
  // A proxy that lost its server answers with a page of its own.
  if (!error.code && [502, 504].includes(response.status)) error.code = "offline";
  const message = error.message ?? `The server answered with ${response.status}.`;
  throw new ApiError(response.status, error.code ?? `http_${response.status}`, message, error);
}

function fileName(response) {
  const disposition = response.headers.get("Content-Disposition") ?? "";
  const encoded = /filename\*=(?:UTF-8|utf-8)''([^;]+)/.exec(disposition)?.[1];
  const plain = /filename="?([^";]+)"?/.exec(disposition)?.[1];
  try {
    return encoded ? decodeURIComponent(encoded) : plain ?? "hearth-export";
  } catch {
    return plain ?? "hearth-export";
  }
}
