"""What `rlwire export FILE foxglove` writes, in Foxglove's own programs.

Foxglove Studio, the last version that is free software, shows both files in Chromium. The current
SDK has the layout's panels, and the current schemas are JSON.
"""

import base64
import functools
import io
import itertools
import json
import re
import shutil
import subprocess
import tarfile
import threading
from datetime import datetime, timezone
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from PIL import Image

import rlwire
from rlwire.cli import main
from rlwire.recording.recorder import Recorder
from tests.consumers.test_page import browser, wait_until

gymnasium = pytest.importorskip("gymnasium")
reader = pytest.importorskip("mcap.reader")

pytestmark = [pytest.mark.consumers, pytest.mark.timeout(300)]

NPM = "@foxglove/studio-base@1.48.0 @foxglove/schemas@2.1.0 react@17.0.2 react-dom@17.0.2"
COLOUR = (203, 61, 137)
PAGE = """<!doctype html><meta charset="utf-8"><style>html, body, #root { height: 100% }</style>
<div id="root"></div>
<script src="react.production.min.js"></script>
<script src="react-dom.production.min.js"></script>
<script>
  window.react = React;
  window["react-dom"] = ReactDOM;
  window.global = window;
  window.process = { env: {} };
  localStorage.setItem("studio.profile-data", '{"currentLayoutId": "run"}');
</script>
<script src="index.js"></script>
<script type="module">
  const data = await (await fetch("run-foxglove.json")).json();
  for (const panel of Object.values(data.configById)) panel.showPlotValuesInLegend = true;
  // This version's panel for images had another name.
  const { imageTopic } = data.configById["Image!1"].imageMode;
  data.configById["ImageViewPanel!1"] = { cameraTopic: imageTopic };
  data.layout.first = "ImageViewPanel!1";
  const layout = { id: "run", name: "run", permission: "CREATOR_WRITE", baseline: { data } };
  const url = encodeURIComponent(new URL("run-foxglove.mcap", location.href).href);
  const time = encodeURIComponent(new URLSearchParams(location.search).get("end"));
  await initI18n();
  const props = {
    appConfiguration: {
      get: (name) => (name === "colorScheme" ? "light" : undefined),
      set: async () => {}, addChangeListener() {}, removeChangeListener() {},
    },
    dataSources: [new RemoteDataSourceFactory()],
    layoutStorage: {
      list: async () => [layout], get: async () => layout, put: async (space, put) => put,
      delete: async () => {}, importLayouts: async () => {},
    },
    extensionLoaders: [],
    deepLinks: [`${location.origin}/?ds=remote-file&ds.url=${url}&time=${time}`],
    enableGlobalCss: true,
  };
  ReactDOM.render(React.createElement(App, props), document.getElementById("root"));
</script>"""


class Camera(gymnasium.Env):
    observation_space = gymnasium.spaces.Dict(
        {
            "camera": gymnasium.spaces.Box(0, 255, (40, 60, 3), np.uint8),
            "joint.pos": gymnasium.spaces.Box(-9, 9, (2,), np.float32),
        }
    )
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.count = 0
        return self.observe(), {}

    def step(self, action):
        self.count += 1
        return self.observe(), self.count / 4, self.count == 8, False, {}

    def observe(self):
        picture = np.full((40, 60, 3), COLOUR, np.uint8)
        return {"camera": picture, "joint.pos": np.float32([self.count, -0.5])}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A folder with the export of two episodes."""
    folder = tmp_path_factory.mktemp("exported")
    with (
        rlwire.serve(Camera, "dm-env-rpc://localhost:0") as server,
        rlwire.make(server.url, record=str(folder / "run.mcap")) as env,
    ):
        for _ in range(2):
            env.reset()
            while not env.step(1)[2]:
                pass
    for each in list(Recorder._all.values()):
        each.finish()
    assert main(["export", str(folder / "run.mcap"), "foxglove"]) == 0
    return folder


@pytest.fixture(scope="module")
def messages(exported):
    """Each message's channel, schema, time and value."""
    with (exported / "run-foxglove.mcap").open("rb") as file:
        return [
            (channel.topic, json.loads(schema.data), message.log_time, json.loads(message.data))
            for schema, channel, message in reader.make_reader(
                file, validate_crcs=True
            ).iter_messages()
        ]


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A folder for each package of npm's registry."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("npm")
    subprocess.run(["npm", "pack", "--silent", *NPM.split()], cwd=folder, check=True)
    for packed in folder.glob("*.tgz"):
        with tarfile.open(packed) as archive:
            archive.extractall(folder / packed.name.rpartition("-")[0], filter="data")
    return folder


def test_messages_fit_their_schemas_and_images_foxgloves_own(messages, packages):
    jsonschema = pytest.importorskip("jsonschema")
    (text,) = re.findall(
        r"^exports\.CompressedImage = ({.*?^});",
        (packages / "foxglove-schemas/package/dist/jsonschema/index.js").read_text("utf-8"),
        re.S | re.M,
    )
    official = json.loads(text)

    def bare(value):
        if not isinstance(value, dict):
            return value
        return {k: bare(v) for k, v in value.items() if k not in ("description", "$comment")}

    assert {topic.rpartition("/")[2] for topic, *_ in messages} == {
        "action", "camera", "observation", "return", "reward",
    }  # fmt: skip
    for topic, schema, _, value in messages:
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(value, schema)
        if topic == "/1/image/camera":
            assert schema == bare(official)
            jsonschema.validate(value, official)
            assert np.array_equal(
                Image.open(io.BytesIO(base64.b64decode(value["data"]))),
                Camera().reset()[0]["camera"],
            )


def snake(config):
    return {re.sub("([A-Z])", r"_\1", name).lower(): value for name, value in config.items()}


def test_panels_of_the_layout_are_those_of_foxgloves_sdk(exported):
    layouts = pytest.importorskip("foxglove.layouts")
    panels = json.loads((exported / "run-foxglove.json").read_text())["configById"]
    assert panels.keys() == {"Plot!1", "Plot!2", "Image!1"}
    for name, panel in panels.items():
        if name == "Image!1":
            mode = layouts.ImageModeConfig(**snake(panel["imageMode"]))
            made = layouts.ImageConfig(image_mode=mode)
        else:
            paths = [layouts.PlotSeries(**snake(path)) for path in panel["paths"]]
            made = layouts.PlotConfig(**{**snake(panel), "paths": paths})
        assert json.loads(made.to_json()) == panel


class Ranges(SimpleHTTPRequestHandler):
    """Serves files by name from several folders, and parts of them."""

    def __init__(self, *args, folders, **options):
        self.folders = folders
        super().__init__(*args, **options)

    def do_GET(self):
        name = self.path.partition("?")[0].lstrip("/")
        data = PAGE.encode() if name == "" else b""
        for folder in self.folders:
            if name and (folder / name).is_file():
                data = (folder / name).read_bytes()
        part = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        self.send_response(206 if part else 200 if data else 404)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Type", self.guess_type(name or "index.html"))
        if part:
            first, last = int(part[1]), int(part[2] or len(data) - 1)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
            data = data[first : last + 1]
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    do_HEAD = do_GET

    def log_message(self, *args):
        pass


@pytest.fixture
def studio(exported, packages):
    """The address of Foxglove Studio with the export."""
    assets = packages / "foxglove-studio-base" / "package" / "assets"
    scripts = [packages / name / "package" / "umd" for name in ("react", "react-dom")]
    handler = functools.partial(Ranges, folders=[exported, assets, *scripts])
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def last_value(path, messages):
    """Return what a plot's path has at the end."""
    topic, _, inside = path.partition(".value")
    value = [value["value"] for name, *_, value in messages if name == topic][-1]
    for key, index in re.findall(r'\."?([^"\[]+)"?|\[(\d+)\]', inside):
        value = value[key] if key else value[int(index)]
    return value


def test_foxglove_studio_shows_each_curve_and_the_camera(exported, messages, studio, tmp_path):
    panels = json.loads((exported / "run-foxglove.json").read_text())["configById"]
    curves = [curve for name in ("Plot!1", "Plot!2") for curve in panels[name]["paths"]]
    end = datetime.fromtimestamp(max(time for _, _, time, _ in messages) / 1e9 + 1, timezone.utc)
    with browser("about:blank", tmp_path) as page:
        size = {"width": 1280, "height": 640, "deviceScaleFactor": 1, "mobile": False}
        page.call("Emulation.setDeviceMetricsOverride", **size)
        page.call("Page.navigate", url=f"{studio}?end={end:%Y-%m-%dT%H:%M:%S.%fZ}")
        expected = {curve["label"]: last_value(curve["value"], messages) for curve in curves}
        assert len(expected) == 5

        def shown():
            lines = str(page.evaluate("document.body.innerText")).splitlines()
            pairs = [pair for pair in itertools.pairwise(lines) if pair[0] in expected]
            return {label: float(text) for label, text in pairs if text[-1:].isdecimal()}

        wait_until(lambda: shown() == expected)

        def camera():
            picture = base64.b64decode(page.call("Page.captureScreenshot")["data"])
            pixels = np.array(Image.open(io.BytesIO(picture)).convert("RGB"))
            return (pixels == COLOUR).all(-1).sum() > 10_000

        wait_until(camera)
