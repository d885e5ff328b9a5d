// Watches and plays a remote of Universe, over a WebSocket of rlwire.universe.page: pictures, and
// what there is to tell, in JSON; back go keys, the pointer, and that a picture is shown.

const SIGNS = { Up: "▲", Down: "▼", Left: "◀", Right: "▶" };
const NEWS = 5000; // milliseconds that an episode's end is shown

const element = (name) => document.querySelector(`#${name}`);
const number = (value, digits = 3) =>
  value == null ? "-" : Number(value.toFixed(digits)).toString();
const screen = element("screen");
let pixels = null;
let last; // episode that is over
const touched = matchMedia("(pointer: coarse)").matches;
let hint = `${touched ? "Touch a button" : "Press a key"} to start`; // until one is pressed
let pressed = null; // when, until a picture follows
const wire = { pictures: 0, bytes: 0, delay: null }; // of this second; of the last key

function say(name, text, kind = "") {
  element(name).textContent = text;
  element(name).className = kind;
}

function tell(about) {
  document.title = about.name ?? "Universe";
  say("name", document.title);
  say("rate", about.rate ? `${about.rate} steps a second` : "");
  say("total", number(about.score));
  say("best", number(about.best));
  say("episode", about.episode ?? "-");
  if (!element("buttons").children.length) Object.entries(about.buttons ?? {}).forEach(add);
  if (hint && element("buttons").children.length) say("news", hint);
  const over = about.last;
  if (over && last !== undefined && over.episode !== last) {
    const best = over.score === about.best ? ", the best so far" : "";
    const text = `Episode ${over.episode} ended at ${number(over.score)}${best}. The next one begins.`;
    say("news", text);
    setTimeout(() => element("news").textContent === text && say("news", ""), NEWS);
  }
  last = over?.episode ?? null;
}

async function draw(data) {
  const [width, height, x, y] = [0, 2, 4, 6].map((at) => new DataView(data).getUint16(at));
  const picture = await createImageBitmap(new Blob([data.slice(8)]));
  if (screen.width !== width || screen.height !== height) {
    Object.assign(screen, { width, height });
    screen.style.setProperty("--ratio", width / height);
  }
  screen.getContext("2d").drawImage(picture, x, y);
  wire.pictures += 1;
  wire.bytes += data.byteLength;
  if (pressed !== null) [wire.delay, pressed] = [performance.now() - pressed, null];
  send("shown"); // so that the server sends the next one
}

function send(message) {
  const may = message === "shown" || message[1] === false || !element("watch").checked;
  if (may && pixels.readyState === WebSocket.OPEN) pixels.send(JSON.stringify(message));
}

function watch() {
  const { protocol, host, pathname } = new URL("pixels", location.href);
  pixels = new WebSocket(`${protocol.endsWith("s:") ? "wss" : "ws"}://${host}${pathname}`);
  pixels.binaryType = "arraybuffer";
  let opened = false;
  pixels.addEventListener("message", ({ data }) => {
    if (!opened) say("pixels", "connected");
    opened = true;
    if (typeof data === "string") tell(JSON.parse(data));
    else draw(data);
  });
  pixels.addEventListener("close", ({ reason }) => {
    say("pixels", reason || "the connection is closed", "bad");
    if (opened) setTimeout(watch, 2000);
  });
}

setInterval(() => {
  const { pictures, bytes, delay } = wire;
  let text = "over rlwire: pictures on WebSocket";
  if (pictures) text += `, ${pictures} frames a second, ${number(bytes / pictures / 1000, 1)} KB each`;
  if (delay !== null) text += `, ${Math.ceil(delay)} ms after a key`;
  say("wire", text);
  Object.assign(wire, { pictures: 0, bytes: 0 });
}, 1000);

const held = new Map(); // keys that are down, by what holds them: the keyboard's key, or a pointer

function change(holder, key) {
  const before = held.get(holder);
  if (before === key) return; // repeated
  if (key) held.set(holder, key);
  else held.delete(holder);
  const down = [...held.values()];
  if (key) {
    if (element("news").textContent === hint) say("news", "");
    hint = "";
    pressed ??= performance.now();
    send([key, true]);
  } else if (!down.includes(before)) send([before, false]);
  for (const button of element("buttons").children) {
    button.classList.toggle("held", button.keys.some((each) => down.includes(each)));
  }
}

element("watch").addEventListener("change", ({ target }) => target.blur());
addEventListener("keydown", (event) => {
  if (event.key === "Tab" || event.metaKey || event.target.id === "watch") return;
  if (!event.ctrlKey && !event.altKey) event.preventDefault();
  const key = event.key.replace(/^ $/, "space").replace("Arrow", "").replace("Page", "Page_");
  if (!event.repeat) change(event.code, key);
});
addEventListener("keyup", ({ code }) => change(code));
addEventListener("blur", () => [...held.keys()].forEach((holder) => change(holder)));
for (const type of ["pointermove", "pointerdown", "pointerup", "pointercancel"]) {
  screen.addEventListener(type, ({ offsetX, offsetY, buttons }) => {
    const [x, y] = [offsetX / screen.clientWidth, offsetY / screen.clientHeight];
    const place = [x * screen.width, y * screen.height].map((at) => Math.max(0, Math.floor(at)));
    send([...place, (buttons & 1) | ((buttons & 2) << 1) | ((buttons & 4) >> 1)]); // as X11's
  });
}
addEventListener("contextmenu", (event) => event.preventDefault()); // of a long touch, too

function add([label, keys]) {
  const button = document.createElement("button");
  Object.assign(button, { keys, tabIndex: -1 });
  button.append(label);
  for (const key of keys) {
    const shown = button.appendChild(document.createElement("kbd"));
    Object.assign(shown, { textContent: SIGNS[key] ?? key, className: key in SIGNS ? "sign" : "" });
  }
  button.addEventListener("pointerdown", ({ pointerId }) => {
    button.setPointerCapture(pointerId);
    change(pointerId, keys[0]);
  });
  button.addEventListener("lostpointercapture", ({ pointerId }) => change(pointerId));
  element("buttons").append(button);
}

watch();
