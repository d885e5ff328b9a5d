"""``app.yaml``: RELAAX's files and ours are read, and what is wrong is said with its line."""

import pytest

from rlwire.relaax.applications import ApplicationError, read_application
from rlwire.transports.address import Address
from tests.raising import raised, raised_with

pytest.importorskip("ruamel.yaml")

# After samples/simple-exchange-js/app.yaml of RELAAX.
ORIGINAL = """
environment:
  run: environment/start
  steps: 3000

relaax-metrics-server:
  enable_unknown_metrics: False
  metrics:
    episode_reward: true
    mu: false

  bind: localhost:7002
  metrics_dir: logs/metrics
  log_metrics_to_console: false
  log_level: INFO

relaax-parameter-server:
  bind: localhost:7000
  checkpoint-dir: logs/checkpoints/
  checkpoint_step_interval: 1e3
  log-level: DEBUG

relaax-rlx-server:
  --bind: 0.0.0.0:7001
  --log-level: debug
  --timeout: 1000

relaax-wsproxy:
  bind: localhost:9000
  log-level: DEBUG

version: 1.1.0
algorithm:
  path: ./algorithm
  name: simple-exchange
  GAMMA: 0.97
"""


@pytest.mark.parametrize("spelling", [str, lambda text: text.replace("relaax-", "relaax_")])
def test_configuration_reads_a_relaax_file(read, spelling, tmp_path):
    application = read(spelling(ORIGINAL))
    assert application.folder == str(tmp_path)
    assert application.rlx_server.address == Address("0.0.0.0", 7001)
    assert application.rlx_server.log_level == "debug"
    assert application.parameter_server.checkpoint_dir == "logs/checkpoints/"
    assert application.parameter_server.checkpoint_step_interval == 1000
    assert application.metrics_server.metrics_dir == "logs/metrics"
    algorithm, environment = application.algorithm, application.environment
    assert (algorithm.path, algorithm.own) == ("./algorithm", {"GAMMA": 0.97})
    assert (environment.run, environment.own) == ("environment/start", {"steps": 3000})


def test_missing_sections_have_defaults(read):
    application = read("environment: {run: x}\nrelaax-rlx-server:\n")
    assert application.algorithm is None
    assert application.rlx_server.address == Address("localhost", 7001)


def test_server_options_are_read_with_their_types(read):
    application = read("relaax-rlx-server: {workers: 2, max-connections: 5, idle_timeout: 2.5}")
    assert application.rlx_server.options == dict(workers=2, max_connections=5, idle_timeout=2.5)


def test_server_address_is_read_from_an_environment_variable(read, monkeypatch):
    server = read("relaax-rlx-server: {bind: 'a:1', bind_by_env_var: THE_BIND}").rlx_server
    assert server.address == Address("a", 1)
    monkeypatch.setenv("THE_BIND", "b:2")
    assert server.address == Address("b", 2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("environment: [", "cannot be read as YAML"),
        ("a text", "must hold sections"),
        ("\n\nenvironment: 5", "app.yaml:3: environment must be a section, not 5"),
        ("relaax-rlx-server: {}\nrelaax_rlx_server: {}", "app.yaml:2: relaax_rlx_server "),
        (
            "relaax-metrics-server:\n  bind: a:1\n  metrics_dri: x",
            "app.yaml:3: relaax-metrics-server/metrics_dri: .*metrics_dir",
        ),
        ("relaax-parameter-server:\n  checkpoints-to-keep: 1.5", "expected int, not 1.5"),
        (
            "relaax-rlx-server:\n  log-level: INFO\n  log_level: INFO",
            "app.yaml:3: relaax-rlx-server/log_level ",
        ),
        ("relaax-rlx-server:\n  bind: 5", "app.yaml:2: .*expected str, not 5"),
        ("environment: {infinite_run: maybe}", "app.yaml:1: environment/infinite_run: expected"),
        ("environment: {max_episodes: many}", "app.yaml:1: environment/max_episodes: expected"),
    ],
)
def test_invalid_configuration_is_a_one_line_error(read, text, expected):
    assert "\n" not in str(raised_with(ApplicationError, expected, read, text))


def test_invalid_addresses_and_options_are_named_on_use(read):
    application = read("relaax-rlx-server:\n  bind: nowhere")
    with pytest.raises(ApplicationError, match=r"app.yaml:1: bind: .*nowhere"):
        _ = application.rlx_server.address
    for options, expected in (("workers: many", "workers.*many"), ("bnid: 5", "bnid")):
        with pytest.raises(ApplicationError, match=rf"app.yaml:1: .*{expected}"):
            _ = read(f"relaax-rlx-server: {{{options}}}").rlx_server.options


def test_missing_file_error_names_the_command_to_create_one(tmp_path):
    with pytest.raises(ApplicationError, match=r"nothing\.yaml: .*`rlwire new NAME`"):
        read_application(tmp_path / "nothing.yaml")
    assert "directory" in str(raised(ApplicationError, read_application, tmp_path))
