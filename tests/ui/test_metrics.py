"""GET /metrics: vLLM's names with the prefix hearth:, read back with a real parser."""

from __future__ import annotations

from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from engine import EngineState, HistogramSnapshot
from tests.factories import make_engine_stats, make_model_info
from tests.fakes import IdleEngine
from ui.api.errors import install_error_handlers
from ui.metrics import metrics_router
from ui.server_config import ServerConfig

BUSY = make_engine_stats(
    num_running=3,
    num_waiting=2,
    num_blocks_in_use=16,
    num_blocks_cached=8,
    num_blocks_free=40,
    num_prompt_tokens_total=1000,
    num_cached_tokens_total=700,
    num_host_tokens_total=150,
    num_disk_tokens_total=50,
    num_host_slots=100,
    num_host_blocks=40,
    disk_bytes=4096,
    num_output_tokens_total=200,
    num_preemptions_total=1,
    num_requests_finished_total={"stop": 4, "length": 5, "abort": 1},
    histograms={"time_to_first_token_seconds": HistogramSnapshot((0.1, 1.0), (2, 5), 6, 3.5)},
)


def client_of(engine: IdleEngine, api_key: str | None = None) -> TestClient:
    app = FastAPI()
    install_error_handlers(app)
    app.include_router(metrics_router(engine=engine, config=ServerConfig(api_key=api_key)))
    return TestClient(app)


def samples(engine: IdleEngine) -> dict[tuple[str, str], float]:
    """(name, the one label besides model_name) -> value."""
    response = client_of(engine).get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")
    found = {}
    for family in text_string_to_metric_families(response.text):
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k != "model_name"}
            found[sample.name, "".join(labels.values())] = sample.value
    return found


def test_vllms_names_carry_the_engines_numbers() -> None:
    found = samples(IdleEngine(stats=BUSY, info=make_model_info()))
    expected = {
        "num_requests_running": 3,
        "num_requests_waiting": 2,
        "kv_cache_usage_perc": 0.25,
        "prefix_cache_queries_total": 1000,
        "prefix_cache_hits_total": 700,
        "prompt_tokens_total": 1000,
        "generation_tokens_total": 200,
        "num_preemptions_total": 1,
        "engine_ready": 1,
        "host_kv_blocks": 40,
        "host_kv_slots": 100,
        "disk_kv_bytes": 4096,
    }
    assert {name: found[f"hearth:{name}", ""] for name in expected} == expected


def test_ended_requests_are_counted_by_reason() -> None:
    found = samples(IdleEngine(stats=BUSY, info=make_model_info()))
    reasons = {label: v for (name, label), v in found.items() if "request_success" in name}
    assert reasons == {"abort": 1, "length": 5, "stop": 4}


def test_cached_tokens_are_counted_by_where_they_were() -> None:
    found = samples(IdleEngine(stats=BUSY, info=make_model_info()))
    sources = {label: v for (name, label), v in found.items() if "cached_tokens" in name}
    assert sources == {"device": 500, "host": 150, "disk": 50}


def test_a_histogram_is_cumulative_and_has_sum_and_count() -> None:
    found = samples(IdleEngine(stats=BUSY, info=make_model_info()))
    name = "hearth:time_to_first_token_seconds"
    buckets = {label: value for (key, label), value in found.items() if key == f"{name}_bucket"}
    assert buckets == {"0.1": 2, "1.0": 5, "+Inf": 6}
    assert (found[f"{name}_count", ""], found[f"{name}_sum", ""]) == (6, 3.5)


def test_an_unknown_number_is_absent_not_zero() -> None:
    found = samples(IdleEngine(stats=make_engine_stats(), info=make_model_info()))
    assert ("hearth:step_duration_seconds", "") not in found
    assert found["hearth:num_requests_running", ""] == 0


def test_while_loading_only_readiness_and_restarts_are_told() -> None:
    assert samples(IdleEngine(EngineState.LOADING)) == {
        ("hearth:engine_ready", ""): 0,
        ("hearth:engine_restarts_total", ""): 0,
    }


def test_the_model_is_a_label() -> None:
    text = client_of(IdleEngine(stats=BUSY, info=make_model_info(name="a/b"))).get("/metrics").text
    assert 'hearth:num_requests_running{model_name="a/b"} 3.0' in text


def test_with_an_api_key_metrics_need_it() -> None:
    client = client_of(IdleEngine(stats=BUSY, info=make_model_info()), api_key="sesame")
    assert client.get("/metrics").status_code == 401
    allowed = client.get("/metrics", headers={"Authorization": "Bearer sesame"})
    assert allowed.status_code == 200
