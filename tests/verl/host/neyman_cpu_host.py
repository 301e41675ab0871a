"""verl's published hooks filled for a machine without an accelerator, so that all of its own code runs.

A platform (`PlatformRegistry`), an engine that writes answers (`RolloutReplicaRegistry`: a Ray actor with a
transformers model, in the place of vLLM), and the way of new weights to it. Trainer, agent loops, reward loop, queue,
FSDP workers, critic and checkpoints are verl's. Loaded in every process by ``VERL_USE_EXTERNAL_MODULES``.
"""

from __future__ import annotations

import types
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
import torch
import transformers
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry, set_platform


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing, where a device would."""


def _device_module() -> types.ModuleType:
    """Return ``torch.cpu`` with what verl asks of a device's memory."""
    module = types.ModuleType("torch_cpu_as_device")
    vars(module).update(
        {name: getattr(torch.cpu, name) for name in dir(torch.cpu) if not name.startswith("__")}
    )
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
        setattr(module, name, lambda *_: 0)
    module.empty_cache = module.reset_peak_memory_stats = module.ipc_collect = module.set_device = _nothing
    module.is_available = lambda: True
    module.mem_get_info = lambda *_: (0, 1)
    module.get_rng_state, module.set_rng_state = torch.get_rng_state, torch.set_rng_state
    module.current_device = lambda: torch.device("cpu")
    module.get_device_name = lambda *_: "CPU"
    return module


@PlatformRegistry.register(platform="cpu")
class CPU(PlatformBase):
    """The CPU where verl expects an accelerator."""

    device_name = vendor_name = "cpu"
    device_module = _device_module()
    set_device = synchronize = set_allocator_settings = empty_cache = _nothing
    profiler_start = profiler_stop = cudart = _nothing

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def ray_resource_name(self) -> str:
        return "GPU"  # of which the tests' cluster has as many as it says

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False


set_platform(CPU())

# verl names gloo once for the CPU and once for the device, which is the same one here.
_init_process_group = torch.distributed.init_process_group


def _init_once(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
    _init_process_group("gloo" if backend == "cpu:gloo,cpu:gloo" else backend, *args, **kwargs)


torch.distributed.init_process_group = _init_once

# verl asks for FlashAttention by name in the critic, and draws the critic's last layer from no seed.
_from_pretrained = transformers.AutoModelForTokenClassification.from_pretrained.__func__


def _without_flash(cls: Any, *args: Any, **kwargs: Any) -> Any:
    torch.manual_seed(0)
    return _from_pretrained(cls, *args, **{**kwargs, "attn_implementation": "sdpa"})


transformers.AutoModelForTokenClassification.from_pretrained = classmethod(_without_flash)

# After the platform, which these ask for when they are imported.
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout  # noqa: E402
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput  # noqa: E402


class Weights(BaseRollout):
    """Hands a trainer's weights to the engine."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, **_: Any) -> None:
        super().__init__(config, model_config, device_mesh)

    async def resume(self, tags: list[str]) -> None:
        """Do nothing: the engine never sleeps."""

    async def release(self) -> None:
        """Do nothing, as `resume`."""

    async def update_weights(self, weights: Any, global_steps: int | None = None, **_: Any) -> None:
        state = {name: tensor.detach().cpu().float() for name, tensor in weights}
        name = f"{self.config.custom['engine']}-{torch.distributed.get_rank()}"
        await ray.get_actor(name).load.remote(state, global_steps)


@ray.remote
class Engine:
    """Writes answers, each by itself, from a generator of its own.

    The i-th answer to a prompt under the same weights is always the same, whichever request asks for it.
    """

    def __init__(self, path: str) -> None:
        torch.set_num_threads(1)
        model = transformers.AutoModelForCausalLM.from_pretrained(path, local_files_only=True)
        self.model = model.float().eval()
        self.step: int | None = 0
        self.asked: Counter[tuple[int, ...]] = Counter()

    async def load(self, state: dict[str, torch.Tensor], step: int | None) -> None:
        found = self.model.load_state_dict(state, strict=False)
        assert not found.unexpected_keys
        self.step = step
        self.asked.clear()

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        prompt = tuple(prompt_ids)
        self.asked[prompt] += 1
        name = repr((self.step, prompt, self.asked[prompt]))
        tokens, log_probs = self._write(prompt, sampling_params.get("max_tokens") or 6, name)
        return TokenOutput(
            token_ids=tokens,
            log_probs=log_probs,
            stop_reason="completed",
            extra_fields={"global_steps": self.step},
        )

    @torch.inference_mode()
    def _write(self, prompt: tuple[int, ...], most: int, name: str) -> tuple[list[int], list[float]]:
        rng = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        fed, cache = torch.tensor([prompt]), None
        tokens: list[int] = []
        log_probs: list[float] = []
        while len(tokens) < most and tokens[-1:] != [self.model.config.eos_token_id]:
            output = self.model(fed, past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            logp = output.logits[0, -1].log_softmax(-1)
            tokens.append(int(torch.multinomial(logp.exp(), 1, generator=rng)))
            log_probs.append(float(logp[tokens[-1]]))
            fed = torch.tensor([tokens[-1:]])
        return tokens, log_probs

    async def sleep(self, **_: Any) -> None:
        """Do nothing: there is no device memory to free."""

    wake_up = clear_kv_cache = release_kv_cache = resume_kv_cache = sleep
    abort_all_requests = resume_generation = sleep


class Replica(RolloutReplica):
    """Starts the engine."""

    async def launch_servers(self) -> None:
        name = f"{self.config.custom['engine']}-{self.replica_rank}"
        engine = Engine.options(name=name, max_concurrency=1000).remote(self.model_config.path)
        self.servers.append(engine)
        self._server_handle, self._server_address = engine, name


_ROLLOUT_REGISTRY["cpu", "async"] = f"{__name__}.Weights"
RolloutReplicaRegistry.register("cpu", lambda: Replica)
