// Watches and plays a remote of Universe: pixels, keyboard and mouse by noVNC, rewards and episodes
// as an observer of the rewarder. Both WebSockets are at the server that this page is from
// (rlwire.universe.page), which passes them on.

import RFB from "./novnc/core/rfb.js";

const EPISODES = 20; // lines of past ones

const element = (name) => document.querySelector(`#${name}`);
const secure = location.protocol.endsWith("s:");
const socketOf = (path) =>
  `${secure ? "wss" : "ws"}://${location.host}${new URL(path, location.href).pathname}`;

function say(name, text, kind = "") {
  element(name).textContent = text;
  element(name).className = kind;
}

// -- rewards

const episode = { id: null, sum: 0, count: 0 };
const number = (value) => Number(value.toFixed(3)).toString();

function begin(id) {
  if (id === episode.id) return;
  if (episode.count > 0) {
    const line = element("episodes").insertRow(0);
    for (const text of [episode.id ?? "", episode.count, number(episode.sum)]) {
      line.insertCell().textContent = text;
    }
    while (element("episodes").rows.length > EPISODES) element("episodes").deleteRow(-1);
  }
  Object.assign(episode, { id, sum: 0, count: 0 });
}

function hear({ method, headers, body }) {
  if (headers?.episode_id !== undefined && headers.episode_id !== null) begin(headers.episode_id);
  if (method === "v0.env.describe") {
    if (body.env_id) {
      element("name").textContent = body.env_id;
      document.title = body.env_id;
    }
    say("rewards", `${body.env_state}${body.fps ? `, ${body.fps} steps a second` : ""}`, "good");
  } else if (method === "v0.env.reward") {
    episode.sum += body.reward;
    episode.count += 1;
  } else if (method === "v0.env.text") {
    element("texts").textContent = body.text;
  } else if (method === "v0.connection.close") {
    say("rewards", body.message, "bad");
  }
  element("episode").textContent = episode.id ?? "-";
  element("total").textContent = number(episode.sum);
}

function observe() {
  const socket = new WebSocket(socketOf("rewards"));
  let heard = false;
  socket.addEventListener("message", ({ data }) => {
    heard = true;
    hear(JSON.parse(data));
  });
  socket.addEventListener("close", ({ reason }) => {
    say("rewards", reason || "the rewarder is gone", "bad");
    if (heard) setTimeout(observe, 2000);
  });
}

// -- pixels

let screen = null;

function connect() {
  let opened = false;
  screen = new RFB(element("screen"), socketOf("pixels"), { shared: true });
  screen.scaleViewport = true;
  screen.viewOnly = element("watch").checked;
  screen.addEventListener("connect", () => {
    opened = true;
    element("ask").hidden = true;
    say("pixels", "connected", "good");
    screen.focus();
  });
  screen.addEventListener("desktopname", ({ detail }) => {
    if (detail.name && !about.name) element("name").textContent = detail.name;
  });
  screen.addEventListener("credentialsrequired", () => {
    element("ask").hidden = false;
    element("password").focus();
    say("pixels", "a password is needed");
  });
  screen.addEventListener("securityfailure", ({ detail }) => {
    say("pixels", detail.reason ?? "refused", "bad");
  });
  screen.addEventListener("disconnect", () => {
    if (element("pixels").className !== "bad") say("pixels", "the pixels are gone", "bad");
    if (opened) setTimeout(connect, 2000);
  });
}

element("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  screen.sendCredentials({ password: element("password").value });
  element("password").value = "";
});
element("watch").addEventListener("change", () => {
  screen.viewOnly = element("watch").checked;
  if (!screen.viewOnly) screen.focus();
});

const about = await (await fetch("about")).json();
if (about.name) element("name").textContent = document.title = about.name;
for (const [held, action] of Object.entries(about.keys ?? {})) {
  const key = document.createElement("kbd");
  key.textContent = held;
  element("keys").append(key, ` ${action} `);
}
if (about.rewards) observe();
else say("rewards", "no rewarder");
connect();
