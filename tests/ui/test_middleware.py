"""Security headers on every answer, and the bound on request bodies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from ui.middleware import BodyLimit, SecurityHeaders

LIMIT = 1000
IMPORTS = ("/api/chat/import",)
CALL = "/api/chat/ask"


async def echo_size(request: Request) -> Response:
    return JSONResponse(len(await request.body()))


async def events(request: Request) -> Response:
    return StreamingResponse(iter([b"data: 1\n\n"]), media_type="text/event-stream")


def make_client() -> TestClient:
    sizes = [Route(path, echo_size, methods=["POST"]) for path in ("/size", *IMPORTS, CALL)]
    app = Starlette(routes=[*sizes, Route("/events", events)])
    limited = BodyLimit(app, max_bytes=LIMIT, max_bytes_of_path=dict.fromkeys(IMPORTS, 2 * LIMIT))
    return TestClient(SecurityHeaders(limited))


def pieces(num_bytes: int) -> Iterator[bytes]:
    """A body whose length is not announced."""
    for _ in range(num_bytes):
        yield b"x"


def test_answers_carry_the_security_headers() -> None:
    headers = make_client().post("/size").headers
    policy = headers["content-security-policy"]
    assert "img-src 'self' data: blob:;" in policy
    assert "form-action 'self';" in policy
    assert "connect-src 'self'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert "x-accel-buffering" not in headers


def test_event_streams_are_not_to_be_buffered() -> None:
    assert make_client().get("/events").headers["x-accel-buffering"] == "no"


def test_a_body_at_the_limit_passes() -> None:
    assert make_client().post("/size", content=b"x" * LIMIT).json() == LIMIT
    assert make_client().post("/size", content=pieces(LIMIT)).json() == LIMIT


def test_an_announced_length_above_the_limit_is_refused_in_openais_shape() -> None:
    response = make_client().post("/size", content=b"x" * (LIMIT + 1))
    assert response.status_code == 413
    assert response.json() == {
        "error": {
            "message": "The request is larger than 1000 bytes: send less at once.",
            "type": "invalid_request_error",
            "param": None,
            "code": None,
        }
    }


def test_a_length_that_was_not_announced_is_counted() -> None:
    assert make_client().post("/size", content=pieces(LIMIT + 1)).status_code == 413


@pytest.mark.parametrize("length", ["-5", "abc"])
def test_a_false_length_does_not_lift_the_limit(length: str) -> None:
    client = make_client()
    headers = {"Content-Length": length}
    assert client.post("/size", content=pieces(LIMIT + 1), headers=headers).status_code == 413


def test_a_path_may_have_a_limit_of_its_own() -> None:
    client = make_client()
    (path,) = IMPORTS
    assert client.post(path, content=b"x" * 2 * LIMIT).json() == 2 * LIMIT
    assert client.post(path, content=b"x" * (2 * LIMIT + 1)).status_code == 413
    assert client.post(path, content=pieces(2 * LIMIT + 1)).status_code == 413


def test_the_chats_calls_are_refused_in_their_own_shape() -> None:
    response = make_client().post(CALL, content=b"x" * (LIMIT + 1))
    assert response.status_code == 413
    assert response.json() == {
        "error": {
            "code": "too_large",
            "message": "The request is larger than 1000 bytes: send less at once.",
        }
    }
