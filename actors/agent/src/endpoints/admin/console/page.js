"use strict";
// Shows the node, and asks again every two seconds while somebody looks. All text is set as text, never as markup.

const PERIOD = 2000;
// The agent measures every pod for it.
const PRESSURE_PERIOD = 10000;
const LOG_LINES = 500;

const TABS = ["pods", "plugins", "tree", "volumes", "images", "pressure", "events"];

// Elements.

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = String(text);
  if (kind) made.className = kind;
  return made;
}

function link(text, ...parts) {
  const made = element("a", text);
  made.href = "#" + parts.map(encodeURIComponent).join("/");
  return made;
}

// A cell is a text, or { text, kind }, or { node }.
function table(head, rows, empty) {
  if (rows.length === 0) return element("p", empty || "none", "muted");
  const made = element("table");
  const top = made.createTHead().insertRow();
  for (const name of head) {
    const cell = element("th", name);
    cell.scope = "col";
    top.append(cell);
  }
  const body = made.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const cell of row) {
      const shown = line.insertCell();
      if (cell && cell.node) shown.append(cell.node);
      else shown.textContent = String((cell && cell.text !== undefined ? cell.text : cell) ?? "");
      if (cell && cell.kind) shown.className = cell.kind;
      if (typeof cell === "number") shown.className = "number";
    }
  }
  return made;
}

// Units.

// A cell.
function age(then) {
  if (!then) return "";
  const at = typeof then === "object" ? then.secs_since_epoch * 1000 : Date.parse(then);
  const seconds = Math.max(0, Math.round((Date.now() - at) / 1000));
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  const at_unit = units.findIndex(([, size]) => seconds >= 2 * size);
  const [unit, size] = units[at_unit < 0 ? 3 : at_unit];
  return { text: Math.floor(seconds / size) + unit, kind: "number" };
}

function bytes(count) {
  if (count === undefined || count === null) return "";
  const units = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
  let unit = 0;
  let left = count;
  while (left >= 1024 && unit + 1 < units.length) {
    left /= 1024;
    unit += 1;
  }
  return (unit === 0 || left >= 100 ? Math.round(left) : left.toFixed(1)) + units[unit];
}

// Requests.

async function answer(path) {
  const got = await fetch(path, { cache: "no-store", credentials: "same-origin" });
  if (got.ok) return got;
  const text = await got.text();
  let why = text;
  try {
    why = JSON.parse(text).error || text;
  } catch {
    // It is no JSON: the text says it.
  }
  throw new Error(path + ": " + (why || got.status));
}

async function data(path) {
  return (await answer(path)).json();
}

// Views: each returns nodes.

const views = {
  async pods() {
    const pods = await data("pods");
    const rows = pods.map((pod) => [
      pod.namespace,
      { node: link(pod.name, "pod", pod.namespace, pod.name) },
      { text: pod.ready + "/" + pod.containers, kind: "number" },
      { text: pod.status, kind: ["Running", "Succeeded"].includes(pod.status) ? "good" : "bad" },
      pod.restarts,
      age(pod.started),
      pod.ip,
      pod.stage,
    ]);
    return [table(["namespace", "name", "ready", "status", "restarts", "age", "ip", "stage"], rows, "no pods")];
  },

  async plugins() {
    const rows = (await data("plugins")).map((plugin) => [
      { text: plugin.name, kind: "name" },
      plugin.kind,
      { text: plugin.state, kind: plugin.state === "ready" ? "good" : "bad" },
      age(plugin.since),
      plugin.generation,
      plugin.pid,
      plugin.restarts,
      plugin.program,
      [plugin.reason, plugin.warning, plugin.last_exit && "last exit: " + plugin.last_exit].filter(Boolean).join("; "),
    ]);
    return [table(["name", "kind", "state", "since", "generation", "pid", "restarts", "program", "reason"], rows)];
  },

  async tree() {
    const rows = [];
    const add = (node, before, beneath) => {
      const { len, capacity } = node.mailbox;
      rows.push([
        { text: before + node.id, kind: "name" },
        { text: node.state, kind: node.state === "Running" ? "good" : "bad" },
        node.restarts,
        node.handled,
        capacity ? len + "/" + capacity : "",
        node.busy_with,
        node.last_exit,
      ]);
      node.children.forEach((child, index) => {
        const last = index + 1 === node.children.length;
        add(child, beneath + (last ? "└─ " : "├─ "), beneath + (last ? "   " : "│  "));
      });
    };
    add(await data("tree"), "", "");
    return [table(["name", "state", "restarts", "handled", "mailbox", "busy with", "last exit"], rows)];
  },

  async volumes() {
    const view = await data("volumes");
    const rows = view.volumes.map((row) => [
      row.pod,
      row.volume,
      row.kind,
      { text: row.state, kind: row.state === "Mounted" ? "good" : "bad" },
      bytes(row.figures.used),
      bytes(row.figures.capacity),
      row.why,
      row.path,
    ]);
    const shown = [table(["pod", "volume", "kind", "state", "used", "capacity", "why", "path"], rows, "no volumes")];
    for (const name of view.stuck) shown.push(element("p", "stuck: " + name, "bad"));
    for (const name of view.refused) shown.push(element("p", "refused: " + name, "bad"));
    return shown;
  },

  async images() {
    // A runtime that does not list its images hides no pull.
    const [pulls, present] = await Promise.all([data("images"), data("images/present").catch((error) => error)]);
    const rows = pulls.rows.map((row) => [
      row.image,
      row.state,
      row.pod,
      row.purpose,
      age(row.since),
      row.attempt,
      row.last_error,
    ]);
    const shown = [
      element("h2", "Pulls"),
      table(["image", "state", "pod", "for", "since", "attempt", "last error"], rows, "no image is pulled or waits"),
      element("h2", "There"),
    ];
    if (present instanceof Error) return [...shown, element("p", present.message, "bad")];
    const there = present.rows.map((row) => [row.names.join(", "), { text: bytes(row.bytes), kind: "number" }, row.id]);
    shown.push(table(["image", "size", "id"], there, "no images"));
    if (present.left_out) shown.push(element("p", "and " + present.left_out + " more", "muted"));
    return shown;
  },

  async pressure() {
    // With CPU and memory alone the summary would lack the stalls of input and output.
    const [{ node }, tree] = await Promise.all([data("../stats/summary"), data("tree")]);
    const cores = (usage) => (usage && usage.usageNanoCores !== undefined ? (usage.usageNanoCores / 1e9).toFixed(3) : "");
    const groups = [{ name: node.nodeName, cpu: node.cpu, memory: node.memory }, ...(node.systemContainers || [])];
    const used = groups.map((group) => [
      group.name,
      cores(group.cpu),
      bytes(group.memory && group.memory.workingSetBytes),
      bytes(group.memory && group.memory.availableBytes),
    ]);
    const stalls = [["cpu", node.cpu], ["memory", node.memory], ["io", node.io]].flatMap(([name, stats]) => {
      const psi = (stats && stats.psi) || {};
      const kinds = ["some", "full"].filter((kind) => psi[kind]);
      // What has not begun to count is not measured.
      if (!kinds.some((kind) => psi[kind].total > 0)) return [];
      return kinds.map((kind) => [name, kind, psi[kind].avg10, psi[kind].avg60, psi[kind].avg300]);
    });
    const eviction = find(tree, "eviction");
    const pressures = (eviction && eviction.snapshot && eviction.snapshot.pressures) || [];
    const evicted = eviction && eviction.snapshot ? eviction.snapshot.evicted : "";
    return [
      element("h2", "Under pressure"),
      element("p", pressures.length ? pressures.join(", ") : "nothing", pressures.length ? "bad" : "good"),
      element("p", "pods evicted since the start: " + evicted, "muted"),
      element("h2", "Used"),
      table(["", "cores", "memory", "available"], used),
      element("h2", "Stalls: share of the time, in percent"),
      table(["resource", "", "10 s", "60 s", "300 s"], stalls, "none are measured: that takes cgroups of version 2"),
    ];
  },

  async events() {
    const rows = (await data("events")).reverse().map((event) => [
      age(event.lastSeen),
      event.count,
      { text: event.type, kind: event.type === "Warning" ? "bad" : "" },
      event.reason,
      [event.object.kind, event.object.namespace, event.object.name].filter(Boolean).join("/"),
      event.message,
    ]);
    return [table(["last seen", "count", "type", "reason", "object", "message"], rows, "no events")];
  },

  async pod(namespace, name) {
    const why = await data(["why", namespace, name].map(encodeURIComponent).join("/"));
    const containers = why.containers.map(([container, state]) => [
      { node: link(container, "log", namespace, name, container) },
      state,
    ]);
    const lines = [...why.lines].reverse().map((line) => [
      age(line.first),
      age(line.last),
      line.count,
      line.why.object,
      line.why.reason,
      line.why.message,
    ]);
    return [
      element("h2", namespace + "/" + name),
      table(["stage", "phase", "runtime"], [[why.stage, why.phase, why.runtime]]),
      element("h2", "Containers, and their logs"),
      table(["container", "state"], containers, "none yet"),
      element("h2", "What was done, and why"),
      table(["first", "last", "count", "container", "reason", "message"], lines, "nothing yet"),
    ];
  },

  async log(namespace, name, container) {
    const path = ["..", "containerLogs", ...[namespace, name, container].map(encodeURIComponent)].join("/");
    const text = await (await answer(path + "?tailLines=" + LOG_LINES)).text();
    const title = element("h2");
    title.append(link(namespace + "/" + name, "pod", namespace, name), " " + container);
    return [title, element("pre", text || "nothing was written")];
  },
};

function find(node, id) {
  if (node.id === id) return node;
  for (const child of node.children) {
    const found = find(child, id);
    if (found) return found;
  }
  return undefined;
}

// What is shown, and when it is asked for again.

let timer;
let turn = 0;

function place() {
  const parts = location.hash.slice(1).split("/").filter(Boolean).map(decodeURIComponent);
  return views[parts[0]] ? parts : ["pods"];
}

function showTabs(name) {
  const current = { pod: "pods", log: "pods" }[name] || name;
  const tabs = TABS.map((tab) => {
    const made = link(tab, tab);
    if (tab === current) made.setAttribute("aria-current", "page");
    return made;
  });
  document.getElementById("tabs").replaceChildren(...tabs);
}

function tell(error) {
  const trouble = document.getElementById("trouble");
  trouble.hidden = !error;
  trouble.textContent = error ? error.message : "";
}

async function show() {
  clearTimeout(timer);
  // It is asked for when somebody looks again.
  if (document.hidden) return;
  turn += 1;
  const mine = turn;
  const [name, ...rest] = place();
  showTabs(name);
  try {
    const nodes = await views[name](...rest);
    if (mine !== turn) return;
    document.getElementById("view").replaceChildren(...nodes);
    tell();
  } catch (error) {
    if (mine !== turn) return;
    tell(error);
  }
  document.body.dataset.shown = name;
  timer = setTimeout(show, name === "pressure" ? PRESSURE_PERIOD : PERIOD);
}

addEventListener("hashchange", show);
document.addEventListener("visibilitychange", show);
data("version").then(({ version }) => (document.getElementById("version").textContent = version), tell);
show();
