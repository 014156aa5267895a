"""The team workload through Hearth, sequential `generate`, and Transformers' continuous batching.

    python -m bench.baselines --rounds 2

One run, taking turns, all in fp32 on the same bundled model. `generate` is what a plain Gradio app
does: one request after the other, every prompt computed anew; it is given a few users only, since
its speed does not depend on their number. Continuous batching gets a cache that holds everything,
small pages (so that it can share prefixes at all) and no sliding window.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    ContinuousBatchingConfig,
    GenerationConfig,
)

from bench.chat_load import run_load
from bench.hearth_server import HearthServer, hearth_server
from bench.report import median, print_json, print_table
from bench.workload import ChatWorkload
from engine.config import EngineConfig
from engine.model.bundled import bundled_directory

_NUM_CB_TOKENS = 24_576  # every chat of the workload at once, twice over


class Chats:
    """Histories of some users as prompt ids, by the stock template."""

    def __init__(self, workload: ChatWorkload, users: int, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        system = {"role": "system", "content": workload.system_prompt}
        self._histories = [[system] for _ in range(users)]
        self._messages = [list(workload.messages_of(user)) for user in range(users)]

    def prompts_of_turn(self, turn: int) -> list[list[int]]:
        prompts = []
        for history, messages in zip(self._histories, self._messages, strict=True):
            history.append({"role": "user", "content": messages[turn]})
            ids = self._tokenizer.apply_chat_template(
                history, add_generation_prompt=True, return_dict=False
            )
            prompts.append(list(ids))
        return prompts

    def record(self, user: int, token_ids: Sequence[int]) -> None:
        text = self._tokenizer.decode(token_ids, skip_special_tokens=True)
        self._histories[user].append({"role": "assistant", "content": text})


class Baselines:
    """The two ways of generating without Hearth."""

    def __init__(self, directory: str, workload: ChatWorkload, sequential_users: int) -> None:
        self._workload = workload
        self._sequential_users = sequential_users
        self._tokenizer = AutoTokenizer.from_pretrained(directory)
        self._model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()

    def sequential_generate(self) -> float:
        """Tokens per second of one request after the other."""
        chats = Chats(self._workload, self._sequential_users, self._tokenizer)
        length = self._workload.max_tokens
        num_tokens = 0
        start = time.perf_counter()
        for turn in range(self._workload.turns):
            for user, prompt in enumerate(chats.prompts_of_turn(turn)):
                ids = torch.tensor([prompt])
                with torch.inference_mode():
                    output = self._model.generate(
                        ids,
                        attention_mask=torch.ones_like(ids),
                        do_sample=False,
                        min_new_tokens=length,
                        max_new_tokens=length,
                        pad_token_id=self._tokenizer.eos_token_id,
                    )
                reply = output[0, len(prompt) :].tolist()
                num_tokens += len(reply)
                chats.record(user, reply)
        return num_tokens / (time.perf_counter() - start)

    def continuous_batching(self, page_size: int = 32) -> float:
        """Tokens per second of Transformers' continuous batching, all users at once."""
        users = self._workload.users
        chats = Chats(self._workload, users, self._tokenizer)
        config = ContinuousBatchingConfig(
            page_size=page_size,
            num_blocks=_NUM_CB_TOKENS // page_size,
            max_batch_tokens=512,
            max_requests_per_batch=users,
        )
        generation = GenerationConfig(
            do_sample=False,
            max_new_tokens=self._workload.max_tokens,
            eos_token_id=-1,
            pad_token_id=0,
        )
        num_tokens = 0
        with self._model.continuous_batching_context_manager(
            generation_config=generation, continuous_batching_config=config
        ) as manager:
            start = time.perf_counter()
            for turn in range(self._workload.turns):
                prompts = chats.prompts_of_turn(turn)
                for user, prompt in enumerate(prompts):
                    manager.add_request(prompt, request_id=f"{turn}-{user}")
                for _ in prompts:
                    output = manager.get_result(timeout=600)
                    if output is None or output.error:
                        raise SystemExit(f"Continuous batching failed: {output and output.error}")
                    num_tokens += len(output.generated_tokens)
                    chats.record(int(output.request_id.split("-")[1]), output.generated_tokens)
            return num_tokens / (time.perf_counter() - start)


class Rates(NamedTuple):
    """Tokens per second, one entry a round."""

    hearth: list[float]
    generate: list[float]
    transformers_cb: list[float]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--users", type=int, default=16)
    parser.add_argument("--sequential-users", type=int, default=2)
    parser.add_argument("--kv-cache-dtype", default="auto", help="of Hearth")
    options = parser.parse_args(arguments)
    workload = ChatWorkload(users=options.users)
    directory = bundled_directory(EngineConfig().cache_path, print)
    baselines = Baselines(str(directory), workload, options.sequential_users)
    settings = ["--dtype", "float32", "--kv-cache-dtype", options.kv_cache_dtype]
    with hearth_server(settings) as server:
        rates, figures = _take_turns(server, baselines, workload, options.rounds)
    _report(rates, figures)


def _take_turns(
    server: HearthServer, baselines: Baselines, workload: ChatWorkload, rounds: int
) -> tuple[Rates, dict[str, Any]]:
    rates = Rates([], [], [])
    figures: dict[str, Any] = {}
    for number in range(rounds):
        fresh = ChatWorkload(users=workload.users, seed=workload.seed + number)  # nothing cached
        body = {"temperature": 0.0, "ignore_eos": True}
        load = asyncio.run(run_load(server.url, fresh, dict(body)))
        if len(load.replies) != load.num_expected:
            raise SystemExit("Hearth left requests unanswered: this is no run.")
        figures = load.figures()
        rates.hearth.append(figures["tokens_per_s"])
        with server.paused():
            rates.generate.append(_timed("generate", baselines.sequential_generate))
            rates.transformers_cb.append(_timed("transformers", baselines.continuous_batching))
    return rates, figures


def _timed(name: str, measure: Callable[[], float]) -> float:
    rate = measure()
    print(f"{name}: {rate:.1f} tokens/s")
    return rate


def _report(rates: Rates, figures: dict[str, Any]) -> None:
    hearth = median(rates.hearth)
    rows = [
        [name, f"{median(values):.1f}", f"{min(values):.1f}-{max(values):.1f}",
         f"{hearth / median(values):.2f}"]
        for name, values in rates._asdict().items()
    ]  # fmt: skip
    print_table(["", "tokens/s", "spread", "Hearth is faster by"], rows)
    print_json(
        {
            "ratio_to_generate": round(hearth / median(rates.generate), 2),
            "ratio_to_transformers_cb": round(hearth / median(rates.transformers_cb), 2),
            **{f"{name}_tokens_per_s": values for name, values in rates._asdict().items()},
            "cached_share": figures["cached_share"],
            "ttft_p50_s": figures["ttft_p50_s"],
            "ttft_p95_s": figures["ttft_p95_s"],
        }
    )


if __name__ == "__main__":
    main()
