// Calls to the server: JSON there and back, errors as `ApiError`. Paths are those behind /api/chat/.

const BASE = "/api/chat/";
const CALL_LIMIT_MS = 30000;

export class ApiError extends Error {
  // `status` 0 and `code` "offline": the server was not reached. `details` is the server's whole error object.
  constructor(status, code, message, details = {}) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
    this.details = details;
  }

  get isOffline() {
    return this.code === "offline";
  }
}

async function call(method, path, body, limitMs = CALL_LIMIT_MS) {
  const options = { method, credentials: "same-origin", cache: "no-store", signal: AbortSignal.timeout(limitMs) };
  if (body !== undefined) {
    options.headers = { "Content-Type": "application/json" };
    options.body = JSON.stringify(body);
  }
  let response, text;
  try {
    response = await fetch(BASE + path, options);
    text = await response.text();
  } catch (error) {
    throw new ApiError(0, "offline", "The server cannot be reached.", { cause: String(error) });
  }
  const content = parsed(text);
  if (response.ok) return content ?? {};
  throw errorOf(response, content);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function errorOf(response, content) {
  const error = content?.error ?? {};
  const details = { ...error, retry_after_s: Number(response.headers.get("Retry-After")) || null };
  // A proxy that lost its server answers with a page of its own.
  const isGateway = [502, 504].includes(response.status) && !content?.error;
  const code = isGateway ? "offline" : error.code ?? `http_${response.status}`;
  return new ApiError(response.status, code, error.message ?? `The server answered with ${response.status}.`, details);
}

export const api = {
  get: (path) => call("GET", path),
  post: (path, body = {}) => call("POST", path, body),
  patch: (path, body = {}) => call("PATCH", path, body),
  put: (path, body = {}) => call("PUT", path, body),
  del: (path) => call("DELETE", path),
};
