"""`RLlibServer` trains an RLlib algorithm with environments that connect: ``rllib:PPO``.

RLlib's runners, in Ray actors, listen for environments, each at its own port. The algorithm trains
in a thread of the server's process.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rlwire._options import LearningOptions, Options, resolve, with_options
from rlwire.environments import vector
from rlwire.environments.loading import load
from rlwire.environments.remote import RemoteEnvironment, given_spaces
from rlwire.environments.spaces import named_space
from rlwire.errors import on_error, optional
from rlwire.rlx import config as files
from rlwire.rlx.metrics import sink_of
from rlwire.serving.serving import BackgroundServer, Running
from rlwire.serving.stopping import keep_signals
from rlwire.serving.threads import Worker
from rlwire.transports.address import Address
from rlwire.urls import URL, parse_url

with optional("gymnasium", "rllib"):
    from gymnasium.wrappers.vector import DictInfoToList
with optional("ray", "rllib"):
    import ray
from ray.rllib import algorithms
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

from rlwire.rllib.directory import reachable

__all__ = ["CallersEnvRunner", "RLlibServer"]

logger = logging.getLogger(__name__)

ALGORITHMS = ("PPO", "DQN", "IMPALA", "APPO", "SAC")  # those that the tests train

_KEPT = 3  # number of checkpoints
_LONGEST = 30.0  # seconds for an iteration to end, in addition to the grace time


class CallersEnvRunner(SingleAgentEnvRunner):
    """RLlib's runner, with environments that connect to it.

    It waits for `num_envs_per_env_runner` environments, which step together. The `env_config` has
    ``url``, where the first runner listens, and ``server``, options of `rlwire.listen_vec`.
    """

    def make_env(self) -> None:
        self.stop()
        config = self.config
        url = parse_url(config.env_config["url"])
        if url.port:
            url = url.replace(port=url.port + max((self.worker_index or 0) - 1, 0))
        listen, where, options = resolve(url, "listener", config.env_config["server"])
        self.num_envs = config.num_envs_per_env_runner
        self.callers = listen(
            where,
            self.num_envs,
            observation_space=config.observation_space,
            action_space=config.action_space,
            **options,
        )
        makes = [partial(RemoteEnvironment, place) for place in self.callers.endpoints]
        self.env = DictInfoToList(vector.remote(makes))
        self._needs_initial_reset = True


@dataclass(frozen=True)
class RLlibServerOptions(LearningOptions, Options):
    """Options of an `RLlibServer`.

    Attributes:
        url: where the first runner listens, over RLX or openpi; each further runner listens at the
            next port. With port 0 the system chooses all ports.
        config: settings by RLlib's names, such as ``{"lr": 0.001}``; or those of a YAML file,
            ``"FILE"`` or ``"FILE:SECTION"`` (default section: ``algorithm``). Each runner waits
            for ``num_envs_per_env_runner`` environments.
        checkpoints: a folder. The server restores its newest checkpoint when it starts, and saves
            one when it stops and every `save_every` iterations.
        metrics: a sink for ``episode_return_mean`` and ``episode_len_mean``, by steps.
        listening: picklable options of `rlwire.listen_vec`, such as tls, timeout and limits.
    """

    url: URL | str
    _: KW_ONLY
    metrics: Any = None
    listening: Any = None


def algorithm_config(name: str) -> AlgorithmConfig:
    """Return a config by name: ``"PPO"``, or your own ``"module:factory"``."""
    if ":" in name:
        found = load(name, "'PPO' or 'module:config'")
    elif (found := getattr(algorithms, f"{name}Config", None)) is None:
        raise ValueError(
            f"RLlib has no algorithm {name!r}; expected one such as {', '.join(ALGORITHMS)}, or "
            f"your own 'module:config'"
        )
    config = found() if callable(found) and not isinstance(found, AlgorithmConfig) else found
    if not isinstance(config, AlgorithmConfig):
        raise TypeError(f"{name} must be an AlgorithmConfig of RLlib, not {type(config).__name__}")
    return config.copy(copy_frozen=False)


def _plain(value: Any) -> Any:
    if isinstance(value, files.Options):
        return {name: _plain(getattr(value, name)) for name in value}
    return dict(value) if isinstance(value, Mapping) else value


class RLlibServer(BackgroundServer):
    """Trains an RLlib algorithm with environments that connect.

    ::

        with RLlibServer("PPO", "rlx://localhost:7001", like="CartPole-v1") as server:
            ...
        rlwire.serve("rllib:PPO", "rlx://localhost:7001", like="CartPole-v1").wait()

    Checkpoints are RLlib's and contain pickles: restore only those that you trust.

    The name is that of the algorithm, such as ``"PPO"``, or ``"module:factory"`` of a config.
    """

    scheme = "rlx"

    @with_options(RLlibServerOptions)
    def __init__(self, name: str, options: RLlibServerOptions) -> None:
        url, runners, config = parse_url(options.url), options.runners, options.config
        listening = dict(options.listening or {})
        if url.protocol.caller != "environment" or url.scheme == "rllink":
            raise ValueError(
                f"{url.shown}: expected rlx:// or openpi://, where environments connect"
            )
        resolve(url, "listener", listening)  # raises for invalid options, before Ray starts
        if url.unix is not None and runners > 1:
            raise ValueError(
                f"{url.shown}: a unix socket serves one runner, not {runners}: use ports"
            )
        own = algorithm_config(name)
        settings = _plain(files.section(config) if isinstance(config, str) else config or {})
        settings.pop("name", None)  # of the algorithm, in app.yaml
        if unknown := [setting for setting in settings if not hasattr(own, setting)]:
            raise ValueError(f"RLlib's {type(own).__name__} has no setting {unknown[0]!r}")
        own.update_from_dict(settings)
        if own.is_multi_agent:
            raise ValueError(f"{name} is multi-agent, but environments that connect have one agent")
        like, seen, done = options.like, options.observation_space, options.action_space
        if like is None and seen is None and own.observation_space is None:
            like = own.env
        spaces, _ = given_spaces(like, seen, done)
        for which, given in spaces.items():
            space = named_space(given) if isinstance(given, str) else given
            spaces[which] = space or getattr(own, which)
        if None in spaces.values():
            raise ValueError("RLlib needs like=, or observation_space= and action_space=")
        own.environment(env=None, env_config={"url": str(url), "server": listening}, **spaces)
        own.env_runners(
            env_runner_cls=CallersEnvRunner,
            num_env_runners=runners,
            create_env_on_local_worker=not runners,
            sample_timeout_s=None,  # RLlib would drop samples of slow environments
        )
        own.fault_tolerance(restart_failed_env_runners=True)
        own.validate()
        super().__init__(url.address)
        self.scheme = url.scheme
        self.name = name
        self.config = own
        self._guarded = listening.get("tls") is not None or listening.get("auth") is not None
        self._encrypted = url.tls
        self._ray_address = options.ray_address or os.environ.get("RAY_ADDRESS")
        self._iterations = options.iterations
        folder = options.checkpoints
        self._folder = None if folder is None else Path(folder).absolute()
        self._save_every = options.save_every
        self._metrics = sink_of(options.metrics) if options.metrics else None
        self._owns_ray = False
        self._results: dict[str, Any] = {}  # of the last iteration

    @property
    def urls(self) -> list[str]:
        return getattr(self._running, "urls", [])

    def statistics(self) -> dict[str, Any]:
        """Return RLlib's counts since the start.

        ``iterations`` of training, sampled ``steps``, ``episodes`` that have ended, and
        ``episode_return_mean``, None before the first episode has ended.
        """
        of = self._results.get("env_runners", {})
        mean = of.get("episode_return_mean")
        return {
            "iterations": self._results.get("training_iteration", 0),
            "steps": int(of.get("num_env_steps_sampled_lifetime", 0)),
            "episodes": int(of.get("num_episodes_lifetime", 0)),
            "episode_return_mean": None if mean is None or mean != mean else float(mean),
        }

    def _run(self) -> Running:
        self._results = {}
        if not ray.is_initialized():
            more: dict[str, Any] = {}
            if self._ray_address is None:  # each runner and learner reserves a CPU
                most = self.config.num_env_runners + self.config.num_learners + 1
                more = {"num_cpus": max(os.cpu_count() or 1, most), "include_dashboard": False}
            logger.info("starting Ray")
            with keep_signals():
                ray.init(address=self._ray_address or "local", log_to_driver=False, **more)
            self._owns_ray = True
        with on_error(self._end_ray):
            return _Training(self)

    def _details(self) -> str:
        return "; and ".join([f"RLlib's {self.name} behind it", *self.urls[1:]])

    def _after_stop(self) -> None:
        self._end_ray()
        if self._metrics is not None:
            self._metrics.close()

    def _end_ray(self) -> None:
        if self._owns_ray:
            self._owns_ray = False
            ray.shutdown()

    def learnt(self, results: dict[str, Any]) -> None:
        self._results = results
        counts = self.statistics()
        logger.info(
            "iteration %(iterations)d: %(steps)d steps, mean return %(episode_return_mean)s", counts
        )
        if self._metrics is not None:
            for key in ("episode_return_mean", "episode_len_mean"):
                value = results.get("env_runners", {}).get(key)
                if value is not None and value == value:
                    self._metrics.scalar(key, value, counts["steps"])


class _Training:
    def __init__(self, server: RLlibServer) -> None:
        self._server = server
        self.algorithm = server.config.build_algo()
        with on_error(self.algorithm.stop):
            self._group = self.algorithm.env_runner_group
            self._actors = self._group.foreach_env_runner(_actor_of, local_env_runner=False)
            self._restarts = self._group.num_remote_worker_restarts()
            self.urls = self._found()
            if server._folder is not None and (newest := saved(server._folder)):
                logger.info("restoring %s", newest[-1])
                self.algorithm.restore_from_path(str(newest[-1]))
        self._worker = Worker(self._train, "rlwire rllib").start()

    def _found(self) -> list[str]:
        local = not self._server.config.num_env_runners
        return list(self._group.foreach_env_runner(_url_of, local_env_runner=local))

    @property
    def address(self) -> Address:
        return parse_url(self.urls[0]).address

    def drain(self, seconds: float) -> None:
        """Train for `seconds`, because training does not end by itself."""
        self._worker.sleep(seconds)

    def stop(self, grace: float) -> None:
        self._worker.stop(0)
        reports = logging.getLogger("ray.rllib")  # would log each killed runner as an error
        level = reports.level
        reports.setLevel(logging.CRITICAL)
        try:
            for actor in self._actors:
                ray.kill(actor)  # also if it waits for an environment
            if (runner := self.algorithm.env_runner).env is not None:
                runner.callers.close()
            if not self._worker.stop(grace + _LONGEST):
                logger.warning("RLlib's iteration did not end in time and is not saved")
            self.algorithm.stop()
        finally:
            reports.setLevel(level)

    def _train(self, worker: Worker) -> None:
        server = self._server
        try:
            while not worker.stopping:
                results = self.algorithm.train()
                if worker.stopping:
                    break
                server.learnt(results)
                restarts = self._group.num_remote_worker_restarts()
                if restarts != self._restarts:  # a runner may have moved to another node
                    self._restarts, self.urls = restarts, self._found()
                done = server.statistics()["iterations"]
                if done % server._save_every == 0:
                    self._save()
                if server._iterations is not None and done >= server._iterations:
                    server.stop_soon()
                    break
        except (Exception, SystemExit) as error:
            if not worker.stopping:
                logger.exception("RLlib failed; stopping the server")
                server.stop_soon(error)
        self._save()

    def _save(self) -> None:
        """Save a checkpoint, under a temporary name until it is complete; delete the oldest."""
        folder = self._server._folder
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
        except Exception:  # training continues, for example with a full disk
            logger.exception("saving a checkpoint in %s failed", folder)


def saved(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, oldest first."""
    if not folder.is_dir():
        return []
    return sorted(each for each in folder.iterdir() if re.fullmatch(r"rllib-\d+", each.name))


def _actor_of(runner: Any) -> Any:
    return ray.get_runtime_context().current_actor


def _url_of(runner: Any) -> str:
    return reachable(runner.callers.url)
