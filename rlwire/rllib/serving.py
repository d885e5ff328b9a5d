"""`RLlibServer`: one of RLlib's algorithms, which environments call; by name, ``rllib:PPO``.

Ray is begun, or a cluster joined; the runners (`rlwire.rllib.calling`) are Ray's actors,
each on its own port, which Ray starts again if they die; the algorithm trains in a thread of the
serving process. Nothing here is distributed by itself.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlwire.environments.loading import load
from rlwire.environments.remote import given_spaces
from rlwire.environments.spaces import named_space
from rlwire.errors import on_error, optional
from rlwire.registry import URL, check_server_tls, parse_url
from rlwire.rlx.config import Options, section
from rlwire.rlx.metrics import Metrics
from rlwire.serving.serving import BackgroundServer, Running
from rlwire.serving.stopping import keep_signals
from rlwire.transports.address import Address

with optional("ray", "rllib"):
    import ray
    import ray.actor
from ray.rllib import algorithms
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from rlwire.rllib.calling import CallersEnvRunner

__all__ = ["RLlibServer", "RLlibStatistics"]

logger = logging.getLogger(__name__)

ALGORITHMS = ("PPO", "DQN", "IMPALA", "APPO", "SAC")
"""RLlib's that have been tried; any other of its new API stack that samples is taken as well."""

_KEPT = 3  # checkpoints
_LONGEST = 30.0  # seconds, beyond any grace time, for what is learnt to be saved


@dataclass(frozen=True)
class RLlibStatistics:
    """What an `RLlibServer` has done since it was started.

    Attributes:
        iterations: of RLlib's.
        steps: that were learnt from.
        episodes: that ended.
        episode_return_mean: of the last ones, as RLlib counts it; None before one has ended.
    """

    iterations: int = 0
    steps: int = 0
    episodes: int = 0
    episode_return_mean: float | None = None


def server(name: str, url: URL, **options: Any) -> RLlibServer:
    """Return a server of RLlib's algorithm of this name; for `rlwire.serving.fronts`."""
    return RLlibServer(name, url, **options)


def algorithm_config(name: str) -> AlgorithmConfig:
    """Return a config by name: ``"PPO"``, or ``"module:factory"`` of your own."""
    if ":" in name:
        found = load(name, "'PPO' or 'module:config'")
        config = found() if callable(found) and not isinstance(found, AlgorithmConfig) else found
        if not isinstance(config, AlgorithmConfig):
            raise TypeError(
                f"{name} must give RLlib's AlgorithmConfig, not {type(config).__name__}"
            )
        return config.copy(copy_frozen=False)
    kind = getattr(algorithms, f"{name}Config", AlgorithmConfig)
    if kind is AlgorithmConfig:
        raise ValueError(
            f"RLlib has no algorithm {name!r}; expected one such as {', '.join(ALGORITHMS)}, or "
            f"'module:config' of your own"
        )
    made: AlgorithmConfig = kind()
    return made


def _set(config: AlgorithmConfig, settings: Mapping[str, Any] | Options | None) -> None:
    """Set what an application says, by RLlib's own names."""
    told = _plain(settings or {})
    told.pop("name", None)  # the algorithm's, in an app.yaml
    for name in told:
        if not hasattr(config, name):
            raise ValueError(f"{type(config).__name__} of RLlib's has no setting {name!r}")
    config.update_from_dict(told)


def _plain(value: Any) -> Any:
    if isinstance(value, Options):
        return {name: _plain(getattr(value, name)) for name in value}
    return dict(value) if isinstance(value, Mapping) else value


class RLlibServer(BackgroundServer):
    """Trains one of RLlib's algorithms with the environments that call.

    ::

        with RLlibServer("PPO", "rlx://localhost:7001", like="CartPole-v1") as server:
            ...
        rlwire.serve("rllib:PPO", "rlx://localhost:7001", like="CartPole-v1").wait()

    Checkpoints are RLlib's own, which have pickles in them: restore none of a stranger's.

    Args:
        name: of RLlib's algorithm, ``"PPO"``, or ``"module:factory"`` of a config. What the config
            says is kept, but for what follows.
        url: where the first runner listens, in any protocol in which the environment calls; the
            next one listens on the next port. With port 0 the system chooses each.
        like: takes the spaces from an environment, or one of this name.
        observation_space: of the environments; by default the config's.
        action_space: of the environments; by default the config's.
        config: more settings by RLlib's names, such as ``{"lr": 0.001}``, or ``"FILE"`` or
            ``"FILE:SECTION"`` of YAML that has them; the section is ``algorithm`` by default.
        runners: how many, each an actor of Ray's; 0 for one in this process.
        ray_address: of a cluster to join; ``"auto"`` finds this machine's. By default it is the
            variable ``RAY_ADDRESS``; without it Ray is begun here, if it is not already, and ended
            with the server. What `rlwire.serve` begins listens at 127.0.0.1 alone, unless the
            program has imported Ray before: so such a process joins no other cluster later.
        iterations: of RLlib's, after which the server stops; None for never.
        checkpoints: a folder. The newest checkpoint in it is restored at the start, and one is
            saved at the end and every `save_every` iterations.
        save_every: iterations between two checkpoints.
        metrics: a sink for RLlib's results: ``episode_return_mean`` and others, by steps.
        options: of the protocol's ``listen``, such as `tls`, `timeout` and `limits`. They go to
            the runners' processes, so they are picklable.

    """

    scheme = "rlx"

    def __init__(
        self,
        name: str,
        url: URL | str,
        *,
        like: Any = None,
        observation_space: Any = None,
        action_space: Any = None,
        config: Mapping[str, Any] | str | None = None,
        runners: int = 1,
        ray_address: str | None = None,
        iterations: int | None = None,
        checkpoints: str | os.PathLike[str] | None = None,
        save_every: int = 100,
        metrics: Metrics | None = None,
        **options: Any,
    ) -> None:
        url = parse_url(url)
        if url.protocol.caller != "environment" or url.scheme == "rllink":
            raise ValueError(f"{url}: environments do not call in {url.scheme}://, so not here")
        check_server_tls(url, options.get("tls"))
        for what, number, least in (
            ("runners", runners, 0),
            ("iterations", iterations, 1),
            ("save_every", save_every, 1),
        ):
            if number is not None and number < least:
                raise ValueError(f"{what} must be {least} or more, not {number}")
        if url.unix is not None and runners > 1:
            raise ValueError(f"{url}: a unix socket is one runner's; there are {runners}")
        listening = url.protocol.options["listener"]
        if unknown := sorted(name for name in options if not hasattr(listening, name)):
            raise TypeError(f"rllib:{name} has no option {unknown[0]}")
        own = algorithm_config(name)
        _set(own, section(config) if isinstance(config, str) else config)
        if own.is_multi_agent:
            raise ValueError(f"{name} has several agents: environments that call have one each")
        if like is None and observation_space is None and own.observation_space is None:
            like = own.env
        spaces = {
            which: named_space(space) if isinstance(space, str) else space
            for which, space in given_spaces(like, observation_space, action_space).items()
        }
        spaces = {which: given or getattr(own, which) for which, given in spaces.items()}
        if None in spaces.values():
            raise ValueError(
                "nobody tells RLlib the spaces before it begins: give like=, or observation_space= "
                "and action_space="
            )
        own.environment(env=None, env_config={"url": str(url), "server": options}, **spaces)
        own.env_runners(
            env_runner_cls=CallersEnvRunner,
            num_env_runners=runners,
            create_env_on_local_worker=not runners,
        )
        own.fault_tolerance(restart_failed_env_runners=True)
        own.validate()
        super().__init__(url.address)
        self.scheme = url.scheme
        self.name = name
        self.config = own
        self._guarded = options.get("tls") is not None or options.get("auth") is not None
        self._encrypted = url.tls
        self._ray_address = ray_address or os.environ.get("RAY_ADDRESS")
        self._iterations = iterations
        self._saved = None if checkpoints is None else Path(checkpoints).absolute()
        self._save_every = save_every
        self._metrics = metrics
        self._owns_ray = False
        self.statistics_now = RLlibStatistics()

    @property
    def urls(self) -> list[str]:
        """Where each runner listens."""
        running = self._running
        return running.urls if isinstance(running, _Training) else []

    def statistics(self) -> RLlibStatistics:
        """Return what it has done so far; from any thread."""
        return self.statistics_now

    def _run(self) -> Running:
        self.statistics_now = RLlibStatistics()
        if not ray.is_initialized():
            several: dict[str, Any] = {}
            if self._ray_address is None:  # each runner asks for a CPU, and so does a learner
                most = self.config.num_env_runners + self.config.num_learners + 1
                several = {"num_cpus": max(os.cpu_count() or 1, most), "include_dashboard": False}
            logger.info("beginning Ray; a signal is heeded once runners listen")
            with keep_signals():
                ray.init(address=self._ray_address or "local", log_to_driver=False, **several)
            self._owns_ray = True
        with on_error(self._end_ray):
            return _Training(self)

    def _details(self) -> str:
        where = ", ".join(self.urls[1:])
        return f"RLlib's {self.name} behind it" + (f"; and {where}" if where else "")

    def _after_stop(self) -> None:
        self._end_ray()
        if self._metrics is not None:
            self._metrics.close()

    def _end_ray(self) -> None:
        if self._owns_ray:
            self._owns_ray = False
            ray.shutdown()

    def learnt(self, results: dict[str, Any]) -> None:
        """Take note of the results of one iteration."""
        of = results.get("env_runners", {})
        mean = of.get("episode_return_mean")
        steps = int(of.get("num_env_steps_sampled_lifetime", 0))
        self.statistics_now = RLlibStatistics(
            int(results["training_iteration"]),
            steps,
            int(of.get("num_episodes_lifetime", 0)),
            None if mean is None or mean != mean else float(mean),
        )
        logger.info(
            "iteration %d: %d steps, episode_return_mean %s",
            self.statistics_now.iterations, steps, self.statistics_now.episode_return_mean,
        )  # fmt: skip
        if self._metrics is not None:
            told = {key: of.get(key) for key in ("episode_return_mean", "episode_len_mean")}
            for key, value in {**told, **of.get("reported", {})}.items():
                if isinstance(value, (int, float)) and value == value:
                    self._metrics.scalar(key, value, steps)


class _Training:
    """An algorithm that trains in a thread."""

    def __init__(self, server: RLlibServer) -> None:
        self._server = server
        self._ending = threading.Event()
        self.algorithm = server.config.build_algo()
        self._actors: list[Any] = []
        with on_error(self.algorithm.stop):
            group = self.algorithm.env_runner_group
            self._actors = group.foreach_env_runner(_actor_of, local_env_runner=False)
            self._restarts = group.num_remote_worker_restarts()
            self.urls = self._told()
            folder = server._saved
            if folder is not None and (newest := saved(folder)):
                logger.info("going on from %s", newest[-1])
                self.algorithm.restore_from_path(str(newest[-1]))
        self._thread = threading.Thread(target=self._train, name="rlwire rllib", daemon=True)
        self._thread.start()

    def _told(self) -> list[str]:
        """Return where runners listen, as they say."""
        local = not self._server.config.num_env_runners
        found = self.algorithm.env_runner_group.foreach_env_runner(_url_of, local_env_runner=local)
        return [url for url in found if url]

    @property
    def address(self) -> Address:
        """Where the first runner listens."""
        return parse_url(self.urls[0]).address

    def drain(self, seconds: float) -> None:
        """Let what is under way go on for so long; RLlib has no end of it."""
        self._ending.wait(seconds)

    def stop(self, grace: float) -> None:
        """End the iteration that is under way, save, and end the runners."""
        self._ending.set()
        reports = logging.getLogger("ray.rllib")  # each runner that ends here is an error to RLlib
        level = reports.level
        reports.setLevel(logging.CRITICAL)
        try:
            self._stop(grace)
        finally:
            reports.setLevel(level)

    def _stop(self, grace: float) -> None:
        group = self.algorithm.env_runner_group
        with contextlib.suppress(Exception):  # it may be gone
            group.foreach_env_runner(_end, local_env_runner=True, timeout_seconds=grace)
        if self._thread is not threading.current_thread():
            self._thread.join(grace)
            if self._thread.is_alive():  # its runners wait for steps, and nobody calls any more
                self._end_runners()
            self._thread.join(_LONGEST)
            if self._thread.is_alive():
                logger.warning("RLlib did not end its iteration; nothing is saved of it")
        self._end_runners()
        self.algorithm.stop()

    def _end_runners(self) -> None:
        """End runners even if they wait in a call, behind which Ray would queue any other."""
        actors, self._actors = self._actors, []
        for actor in actors:
            ray.kill(actor)

    def _train(self) -> None:
        server = self._server
        try:
            while not self._ending.is_set():
                results = self.algorithm.train()
                if self._ending.is_set():
                    break
                server.learnt(results)
                restarts = self.algorithm.env_runner_group.num_remote_worker_restarts()
                if restarts != self._restarts:  # one may be on another node now
                    self._restarts, self.urls = restarts, self._told()
                done = server.statistics_now.iterations
                if done % server._save_every == 0:
                    self._save()
                if server._iterations is not None and done >= server._iterations:
                    server.stop_soon()
                    break
        except Exception:
            if not self._ending.is_set():
                logger.exception("RLlib failed; nothing is learnt any more")
                server.stop_soon()  # callers would wait for actions that never come
        self._save()

    def _save(self) -> None:
        """Save what there is, under another name until it is whole; the oldest ones go."""
        folder = self._server._saved
        if folder is None:
            return
        whole = folder / f"rllib-{self.algorithm.iteration:08d}"
        part = folder / f".{whole.name}.part"
        try:
            for former in (part, whole):
                shutil.rmtree(former, ignore_errors=True)
            self.algorithm.save_to_path(str(part))
            part.rename(whole)
            for old in saved(folder)[:-_KEPT]:
                shutil.rmtree(old, ignore_errors=True)
        except Exception:  # a full disk is no reason to stop the training
            logger.exception("no checkpoint could be saved in %s", folder)


def saved(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, the oldest first."""
    if not folder.is_dir():
        return []
    return sorted(each for each in folder.iterdir() if re.fullmatch(r"rllib-\d+", each.name))


def _actor_of(runner: Any) -> Any:
    return ray.get_runtime_context().current_actor


def _url_of(runner: Any) -> str:
    return str(runner.url)


def _end(runner: Any) -> None:
    runner.end()
    if runner.worker_index:  # an actor that raised would be waited for, and started again
        runner.stop()
        ray.actor.exit_actor()
