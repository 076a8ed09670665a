// The behaviour of Calve's pages. Each page works without this file; with it, pages are live and quicker to use.
//
// What holds here: markup comes from this server alone, through one policy of trusted types, and text is written as
// text. What a person is at (focus, selected text, what was typed, ticked or opened, the scroll position) survives every
// update. However many events come, a browser has one stream, a page one request at a time, and what is kept is bounded.
"use strict";
(() => {
  const root = document.documentElement;
  root.dataset.script = "";

  /** What this browser remembers. Storage may be full or forbidden: then it is forgotten with the page. */
  const kept = {
    get(name) { try { return localStorage.getItem(`calve-${name}`); } catch { return null; } },
    set(name, value) { try { localStorage.setItem(`calve-${name}`, value); } catch { /* forgotten */ } },
  };
  const policy = window.trustedTypes?.createPolicy("calve", { createHTML: (text) => text }) ?? { createHTML: (text) => text };
  const parse = (text) => new DOMParser().parseFromString(policy.createHTML(text), "text/html");
  const byId = (id) => document.getElementById(id);
  const main = () => byId("main");
  const write = (node, text) => { if (node && node.textContent !== text) node.textContent = text; };

  /** An element with attributes and content; strings become text. */
  function make(tag, attributes = {}, ...content) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...content);
    return made;
  }

  // -- theme ----------------------------------------------------------------------------------------------------------
  // Before the body is there: a page never shows in the wrong colours first.

  const THEMES = ["system", "light", "dark"];

  /** The one that is kept, or, of a click, the next. */
  function showTheme(clicked = false) {
    const at = Math.max(0, THEMES.indexOf(kept.get("theme")));
    const theme = THEMES[clicked ? (at + 1) % THEMES.length : at];
    if (clicked) { kept.set("theme", theme); announce(`Theme: ${theme}`); }
    root.toggleAttribute("data-theme", theme !== "system");
    if (theme !== "system") root.dataset.theme = theme;
    const button = byId("theme");
    if (button) button.title = button.ariaLabel = `Theme: ${theme}`;
  }
  showTheme();

  // -- words: as calve.web.words has them (a test compares) -------------------------------------------------------------

  const count = (number) => Math.round(number).toLocaleString("en-US");
  const counted = (number, one) => `${count(number)} ${one}${number === 1 ? "" : "s"}`;

  function size(number) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let unit = 0;
    for (; number >= 1024 && unit < units.length - 1; unit++) number /= 1024;
    return `${number.toFixed(unit ? 1 : 0)} ${units[unit]}`;
  }

  const UNITS = [["year", 31536000], ["month", 2592000], ["week", 604800], ["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const relative = new Intl.RelativeTimeFormat("en");

  function ago(seconds) {
    const [unit, length] = UNITS.find(([, least]) => Math.abs(seconds) >= least) ?? [];
    return unit ? relative.format(-Math.trunc(seconds / length), unit) : "just now";
  }

  function span(seconds) {
    if (seconds < 10) return `${Math.max(seconds, 0).toFixed(1)} s`;
    const whole = Math.floor(seconds);
    const parts = [["d", whole / 86400], ["h", whole / 3600 % 24], ["min", whole / 60 % 60], ["s", whole % 60]];
    return parts.filter(([, number]) => number >= 1).slice(0, 2).map(([unit, number]) => `${Math.floor(number)} ${unit}`).join(" ");
  }

  // -- time: by the store's clock, never by the browser's ----------------------------------------------------------------

  let clock = { store: NaN, at: 0 };
  const storeNow = () => clock.store + performance.now() - clock.at;

  function setClock() {
    const store = Date.parse(main().dataset.now);
    if (Number.isFinite(store)) clock = { store, at: performance.now() };
  }

  function tick() {
    const now = storeNow();
    if (document.hidden || !Number.isFinite(now) || isSelecting()) return;
    for (const one of main().querySelectorAll("time[datetime]")) write(one, ago((now - Date.parse(one.dateTime)) / 1000));
    for (const one of main().querySelectorAll("[data-since]")) write(one, span((now - Date.parse(one.dataset.since)) / 1000));
  }

  /** The exact time, also in the zone of the person who points at it. */
  function localTime(event) {
    const one = event.target instanceof Element && event.target.closest("time[datetime]");
    if (!one || one.title.includes("·")) return;
    const there = new Date(one.dateTime).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "long" });
    one.title = `${one.title} · ${there}`;
  }

  // -- the status, and what is said to those who do not see it ------------------------------------------------------------

  const SAID_EVERY = 5_000;
  let shown = { word: "", act: null };
  let saidAt = -SAID_EVERY;

  /** `state` is a colour; the word stands for itself. `act` is what a click does; without one it pauses or goes on. */
  function say(state, word = state, act = null) {
    shown = { word, act };
    const status = byId("status");
    if (!status) return;
    let button = status.querySelector("button");
    if (!button) {
      button = make("button", { type: "button", class: "plain" });
      status.replaceChildren(make("span", { class: "dot" }), button);
    }
    status.dataset.live = state;
    button.title = act ? "" : paused ? "Go on (p)" : "Pause (p)";
    write(button, word);
  }

  /** At most one sentence in five seconds: a screen reader is not flooded. */
  function announce(sentence) {
    const now = performance.now();
    if (now - saidAt < SAID_EVERY) return;
    saidAt = now;
    const place = byId("said");
    if (place) place.textContent = sentence; // also the same again
  }

  // -- the stream: one for all tabs of a browser ---------------------------------------------------------------------------
  // Browsers open six connections to a server: a stream for each tab would hang the seventh. The tab that holds the lock
  // has the stream, and passes on what it hears. A hidden tab gives the lock up. Each tab keeps its own cursor, so
  // whichever leads next goes on where it has heard the last.

  const SILENCE = 35_000; // the server pings every 15 s
  const HUNG = 60_000; // of a leading tab that says nothing: its lock is taken
  const HIDDEN = 5_000;
  const MOST_QUIET = 3; // streams that gave nothing; then the page is looked at every ten seconds
  const SLEPT = 20_000; // between two ticks of a second
  const MOST = 200; // processes of one batch; of more it is only said that there were many
  const NAMES = ["process", "progress", "seen", "down", "reset", "stalled", "resumed", "bye", "ping"];
  const live = { on: false, leads: false, over: false, source: null, leave: null, waiting: null, cursor: "", heard: 0, failures: 0, quiet: 0, timer: 0 };
  let paused = false;
  let channel = null;
  let batch = null;
  let hiddenTimer = 0;

  const wants = () => { try { return JSON.parse(main().dataset.wants); } catch { return {}; } };
  const streamUrl = () => new URL(root.dataset.stream, location.href);

  function wake(away) {
    if (live.on || live.over || paused || document.hidden) return;
    live.on = true;
    live.heard = Date.now();
    if (!live.cursor) live.cursor = main().dataset.cursor;
    if (channel === null && window.BroadcastChannel) {
      channel = new BroadcastChannel(`calve ${streamUrl().pathname}`);
      channel.onmessage = (event) => hear(event.data);
    }
    channel?.postMessage({ asks: true }); // the tab that leads says how it stands
    if (away) { say("reconnecting"); load().then(() => lead(false)); } else lead(false);
  }

  function rest(word) {
    live.on = live.leads = false;
    hangUp();
    live.waiting?.abort();
    live.leave?.();
    if (word) say("paused", word);
  }

  /** Waits for the lock, and has the stream for as long as it holds it. */
  async function lead(steal) {
    if (!live.on) return;
    if (!navigator.locks) { live.leads = true; open(); return; } // not a secure context: each visible tab for itself
    const waiting = live.waiting = new AbortController();
    const how = steal ? { steal: true } : { signal: waiting.signal };
    try {
      await navigator.locks.request(`calve ${streamUrl().pathname}`, how, () => {
        if (!live.on || waiting.signal.aborted) return undefined;
        live.leads = true;
        if (!live.source) open();
        return new Promise((leave) => { live.leave = leave; });
      });
    } catch { /* it rests, or another tab took the lock */ }
    if (live.waiting !== waiting) return; // there is a newer wait
    live.leads = false;
    live.leave = null;
    if (live.on) { hangUp(); lead(false); }
  }

  function open() {
    hangUp();
    const url = streamUrl();
    url.searchParams.set("pings", "1");
    if (live.cursor) url.searchParams.set("after", live.cursor);
    const source = live.source = new EventSource(url);
    live.heard = Date.now();
    source.onopen = () => { if (live.quiet <= MOST_QUIET) tell("live"); };
    source.onerror = () => { if (live.source === source) lost(); };
    for (const name of NAMES) source.addEventListener(name, (event) => { if (live.source === source) collect(name, event); });
  }

  function hangUp() {
    live.source?.close();
    live.source = null;
    clearTimeout(live.timer);
  }

  /** The stream is gone. The page itself tells whether the server is there, and whether we may still read. */
  function lost() {
    hangUp();
    if (!live.on || !live.leads) return;
    live.failures += 1;
    live.quiet = loaded.well ? live.quiet + 1 : 0; // pages come and the stream does not: a proxy holds it back
    const polls = live.quiet > MOST_QUIET;
    tell(polls ? "live, every 10 s" : "reconnecting");
    const seconds = polls ? 10 : Math.min(30, 2 ** (live.failures - 1));
    live.timer = setTimeout(again, seconds * 1000 * (0.5 + Math.random()));
  }

  async function again() {
    hangUp();
    const was = loaded.well;
    const well = await load();
    if (!live.on || !live.leads) return;
    if (well && !was) live.failures = 0;
    if (well) open();
    else lost();
  }

  /** To this tab and to those that follow. */
  function tell(word) {
    channel?.postMessage({ word });
    hear({ word });
  }

  function collect(name, event) {
    live.heard = Date.now();
    live.failures = live.quiet = 0;
    if (event.lastEventId) live.cursor = event.lastEventId;
    batch ??= { processes: new Map(), many: false, seen: false, pinged: false, cursor: "", word: "live" };
    batch.cursor = live.cursor;
    if (name === "stalled") batch.word = "the store does not answer";
    if (name === "reset" || name === "resumed") batch.many = true;
    if (name === "seen") batch.seen = true;
    // Outages and silent workers leave no event: a page looks again when a service goes down or comes back, and now and then.
    if (name === "ping" || name === "down") batch.pinged = true;
    if (name === "bye") { flush(); live.quiet = -1; lost(); return; }
    if ((name === "process" || name === "progress") && !batch.many) {
      const data = JSON.parse(event.data);
      for (const one of data.processes ?? [data.process]) batch.processes.set(one.id, one);
      batch.many = batch.processes.size > MOST;
    }
    batch.timer ??= setTimeout(flush, 200);
  }

  function flush() {
    if (!batch) return;
    clearTimeout(batch.timer);
    const { many, seen, pinged, cursor, word } = batch;
    const told = { many, seen, pinged, cursor, word, processes: many ? [] : [...batch.processes.values()].map(brief) };
    batch = null;
    channel?.postMessage(told);
    hear(told);
  }

  const brief = (one) => ({ id: one.id, kind: one.kind, state: one.state, source: one.source, destination: one.destination });

  /** What the stream said, in this tab or in another one. */
  function hear(told) {
    live.heard = Date.now();
    if (!live.on) return;
    if (told.asks && live.leads) channel.postMessage({ word: shown.word });
    if (told.cursor) live.cursor = told.cursor;
    if (told.word && !shown.act) say(told.word.startsWith("live") ? "live" : "reconnecting", told.word);
    if (!told.processes) return;
    if (concerns(told)) markStale(false);
    const ended = told.processes.filter((one) => isAbout(one) && ["COMPLETED", "FAILED", "CANCELLED"].includes(one.state));
    if (ended.length) announce(`${ended[0].kind} ${ended[0].id} ${ended[0].state.toLowerCase()}${ended.length > 1 ? `, and ${ended.length - 1} more` : ""}.`);
  }

  function isAbout(one) {
    const wanted = wants();
    if (wanted.source) return one.source === undefined || (one.source === wanted.source && one.destination === wanted.destination);
    return wanted.all || (wanted.processes ?? []).includes(one.id);
  }

  function concerns(told) {
    const wanted = wants();
    return told.many || told.pinged || told.processes.some(isAbout) || (told.seen && Boolean(wanted.all || wanted.source));
  }

  /** Once a second: times go on, and what is silent is noticed. A machine that slept has missed what was sent. */
  let ticked = Date.now();
  function everySecond() {
    const now = Date.now();
    const slept = now - ticked > SLEPT;
    ticked = now;
    tick();
    if (!live.on) return;
    if (slept) { live.heard = now; if (live.leads) again(); else load(); return; }
    if (live.leads && live.source && now - live.heard > SILENCE) lost();
    else if (live.leads && now - live.heard > SILENCE / 2) channel?.postMessage({ word: shown.word });
    else if (!live.leads && now - live.heard > HUNG) { live.waiting?.abort(); live.heard = now; lead(true); }
  }

  function visibility() {
    clearTimeout(hiddenTimer);
    if (document.hidden) hiddenTimer = setTimeout(() => { if (live.on) rest("paused"); }, HIDDEN);
    else wake(true);
  }

  function pause() {
    if (live.over) return;
    paused = !paused;
    if (paused) rest("paused");
    else wake(true);
  }

  /** Nothing more comes to this page until it is loaded again. */
  function end(word) {
    live.over = true;
    rest("");
    say("reconnecting", word, () => location.reload());
  }

  // -- asking the server -------------------------------------------------------------------------------------------------------

  /** The content of a page, and the answer it came with; its links are absolute. Throws if nothing comes. */
  async function ask(address, options = {}) {
    const answer = await fetch(address, { cache: "no-store", ...options, headers: { "X-Calve-Part": "main", Accept: "text/html", ...options.headers } });
    return { answer, content: parse(await answer.text()).getElementById("main") };
  }

  /** For what is shown on another page than the one it was written for. */
  function settle(content, base) {
    for (const [tag, name] of [["a", "href"], ["form", "action"], ["button", "formaction"]]) { // icons are of this page, too
      for (const one of content.querySelectorAll(`${tag}[${name}]`)) one.setAttribute(name, new URL(one.getAttribute(name), base).href);
    }
    return [...content.childNodes];
  }

  // -- loading the page again ------------------------------------------------------------------------------------------------
  // One request at a time, and not sooner than two seconds after the last, or twenty times what the last one has cost the
  // server. While somebody presses, selects text or has a dialog open, the page stays as it is, and says that it waits.

  const GAP = 2_000;
  const COST = 20;
  const AWAY = 30_000; // until a server that did not answer is asked again
  const loaded = { well: true, stale: false, next: 0, timer: 0, running: null, ready: null };

  function markStale(soon) {
    loaded.stale = true;
    if (soon) loaded.next = 0;
    planLoad();
  }

  function planLoad() {
    if (!loaded.stale || loaded.timer || loaded.running || !live.on) return;
    const wait = Math.max(0, loaded.next - performance.now()) + Math.random() * 200;
    loaded.timer = setTimeout(() => { loaded.timer = 0; if (live.on) load(); }, wait);
  }

  /** Whether the server gave the page. */
  function load() {
    loaded.running ??= fetchMain().then((well) => {
      loaded.well = well;
      loaded.running = null;
      if (!well) { loaded.stale = true; loaded.next = performance.now() + AWAY * (0.5 + Math.random()); }
      planLoad();
      return well;
    });
    return loaded.running;
  }

  async function fetchMain() {
    loaded.stale = false;
    let answer, fresh;
    try {
      ({ answer, content: fresh } = await ask(location.href, { headers: { "X-Calve-After": live.cursor }, signal: AbortSignal.timeout(30_000) }));
    } catch { return false; }
    const spent = [...(answer.headers.get("Server-Timing") ?? "").matchAll(/dur=([\d.]+)/g)].reduce((sum, one) => sum + Number(one[1]), 0);
    loaded.next = performance.now() + Math.max(GAP, COST * spent);
    if (answer.status >= 500 || answer.status === 429) return false;
    const version = answer.headers.get("X-Calve-Version");
    if (version && version !== main().dataset.version) { end("Calve was upgraded: reload"); return true; }
    if (answer.redirected || answer.status === 401) { end("signed out: reload"); return true; }
    if (!answer.ok || !fresh) { end("this page is gone: reload"); return true; }
    if (!live.source) live.cursor = fresh.dataset.cursor || live.cursor; // what was missed is in the page: no need to hear it again
    loaded.ready = fresh;
    apply();
    return true;
  }

  let pressed = false;
  function isSelecting() {
    const selection = getSelection();
    return Boolean(selection && !selection.isCollapsed && main().contains(selection.anchorNode));
  }
  const isBusy = () => pressed || isSelecting() || document.querySelector("dialog[open]") !== null;

  /** Show what was loaded. `asked`: now, and all of it. */
  function apply(asked = false) {
    const fresh = loaded.ready;
    if (!fresh) return;
    if (isBusy() && !asked) { say("live", "changes wait: show", () => apply(true)); return; }
    const added = asked ? 0 : holdNewRows(fresh);
    if (!added) loaded.ready = null;
    const place = standing();
    merge(main(), fresh);
    regain(place);
    document.title = main().dataset.title;
    enhance();
    if (added) say("live", `${added} new: show`, () => apply(true));
    else if (shown.act) say(paused ? "paused" : "live");
  }

  /** Rows that are new at the top of a list would push what is being read: they are announced, and wait. */
  function holdNewRows(fresh) {
    const list = main().querySelector("tbody[data-hold]");
    const next = fresh.querySelector("tbody[data-hold]");
    const reads = scrollY > 0 || main().contains(document.activeElement?.closest("tr") ?? null) || list?.querySelector(":checked");
    if (!list || !next || !reads) return 0;
    const old = new Set([...list.rows].map((row) => row.id));
    const added = [...next.rows].filter((row) => !old.has(row.id));
    if (!added.length) return 0;
    loaded.ready = document.importNode(fresh, true);
    const there = new Set([...next.rows].map((row) => row.id));
    for (const row of added) row.remove();
    for (const row of list.rows) if (!there.has(row.id)) next.append(row.cloneNode(true)); // pushed off the end by them
    return added.length;
  }

  // -- merging: the old page becomes the new one, node by node -----------------------------------------------------------------

  const key = (node) => node.getAttribute?.("id") || node.getAttribute?.("data-key") || ""; // a form's own `id` may be a field

  function isSame(one, other) {
    if (one.nodeName !== other.nodeName || key(one) !== key(other)) return false;
    // A tick belongs to what it stands for, not to a place in a list.
    return one.nodeName !== "INPUT" || (one.type === other.type && one.name === other.name && (!/checkbox|radio/.test(one.type) || one.getAttribute("value") === other.getAttribute("value")));
  }

  function merge(old, fresh) {
    if (old.isEqualNode(fresh) || "savedViews" in old.dataset) return;
    for (const { name, value } of fresh.attributes) if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
    for (const { name } of [...old.attributes]) if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    const keyed = new Map([...old.children].filter(key).map((child) => [key(child), child]));
    let at = old.firstChild;
    for (const wanted of [...fresh.childNodes]) {
      const found = counterpart(wanted, at, keyed);
      if (!found) { old.insertBefore(document.importNode(wanted, true), at); continue; }
      keyed.delete(key(found));
      if (found !== at && found.contains(document.activeElement)) {
        // What has the focus stays where it is, and the others go around it.
        for (const stop = found.nextSibling; at !== found;) { const moved = at; at = at.nextSibling; old.insertBefore(moved, stop); }
      }
      if (found === at) at = at.nextSibling;
      else old.insertBefore(found, at);
      if (found instanceof Element) merge(found, wanted);
      else if (found.nodeValue !== wanted.nodeValue) found.nodeValue = wanted.nodeValue;
    }
    while (at) { const gone = at; at = at.nextSibling; gone.remove(); }
  }

  /** The old node that becomes `wanted`: by its key; else the next of its kind, unless that is wanted right after. */
  function counterpart(wanted, at, keyed) {
    if (!(wanted instanceof Element)) return at && at.nodeType === wanted.nodeType ? at : null;
    if (key(wanted)) { const found = keyed.get(key(wanted)); return found && isSame(found, wanted) ? found : null; }
    const first = at instanceof Element || !at ? at : at.nextElementSibling;
    if (first && !isSame(first, wanted) && wanted.nextElementSibling && isSame(first, wanted.nextElementSibling)) return null;
    for (let one = first; one; one = one.nextElementSibling) if (isSame(one, wanted)) return one;
    return null;
  }

  const ROWS = "tbody tr, .cards > li, .live > li, .hits > li";
  const inRow = (row) => row?.querySelector("input[type=checkbox], a[href], button");

  /** Where the focus is, and who its neighbours are. */
  function standing() {
    const active = document.activeElement;
    if (!active || !main().contains(active) || active === main()) return null;
    const row = active.closest(ROWS);
    const rows = row ? [...row.parentElement.children] : [];
    const index = rows.indexOf(row);
    return { active, id: active.id, near: [...rows.slice(index), ...rows.slice(0, index).reverse()].map((one) => one.id).filter(Boolean) };
  }

  /** What had the focus has it again; if it is gone, what stood next to it. */
  function regain(place) {
    if (!place || document.activeElement === place.active) return;
    if (place.active.isConnected) { place.active.focus({ preventScroll: true }); return; }
    const again = (place.id && byId(place.id)) || inRow(place.near.map(byId).find(Boolean));
    (again || main()).focus({ preventScroll: true });
    if (!place.id || !byId(place.id)) announce("What you were at is gone from this page.");
  }

  // -- choosing rows -----------------------------------------------------------------------------------------------------------

  const BOXES = "tbody .pick input[type=checkbox]";
  let lastBox = null;
  const boxesBeside = (box) => [...box.closest("table").querySelectorAll(BOXES)];

  function choose(event) {
    const box = event.target;
    if (!(box instanceof HTMLInputElement) || !box.matches(BOXES)) return;
    if (event.shiftKey && lastBox?.isConnected && lastBox.closest("table") === box.closest("table")) {
      const boxes = boxesBeside(box);
      const [from, to] = [boxes.indexOf(lastBox), boxes.indexOf(box)].sort((a, b) => a - b);
      for (const one of boxes.slice(from, to + 1)) one.checked = box.checked;
    }
    lastBox = box;
    showChosen();
  }

  /** Arrows go from row to row; with Shift they choose on the way. */
  function stepBox(event, step) {
    const box = event.target;
    if (!box.matches?.(BOXES)) return false;
    const boxes = boxesBeside(box);
    const next = boxes[boxes.indexOf(box) + step];
    if (!next) return true;
    if (event.shiftKey) { box.checked = next.checked = true; lastBox = next; showChosen(); }
    next.focus();
    return true;
  }

  function pick(kind, form) {
    for (const box of form.querySelectorAll(BOXES)) box.checked = kind !== "none" && (kind === "all" || box.closest("tr").dataset.exported === kind);
    showChosen();
  }

  function showChosen() {
    for (const place of main().querySelectorAll("[data-chosen]")) {
      const rows = [...place.closest("form").querySelectorAll(`${BOXES}:checked`)].map((box) => box.closest("tr").dataset);
      const sum = (name) => rows.reduce((total, row) => total + Number(row[name] || 0), 0);
      const more = rows[0]?.rows === undefined ? "selected" : `${count(sum("rows"))} rows, ${size(sum("bytes"))}`;
      write(place, !rows.length ? "Nothing is selected." : more === "selected" ? `${count(rows.length)} selected.` : `${counted(rows.length, "partition")}, ${more}.`);
    }
  }

  // -- dialogs -----------------------------------------------------------------------------------------------------------------

  /** The page that asks for a confirmation, as a dialog; its form is sent as from that page. */
  async function confirm(address) {
    let answer, content;
    try { ({ answer, content } = await ask(address)); } catch { /* the page itself says what is wrong */ }
    if (!content || !answer.ok || answer.redirected) { location.assign(address); return; }
    const dialog = byId("confirm");
    byId("asked").replaceChildren(...settle(content, answer.url));
    dialog.setAttribute("aria-label", dialog.querySelector("h1")?.textContent ?? "Confirm");
    if (!dialog.open) dialog.showModal(); // a double click asks twice
    dialog.querySelector("#asked :is(input:not([type=hidden]), select, button)")?.focus();
  }

  // -- copying ------------------------------------------------------------------------------------------------------------------

  /** What is shown is what is copied. */
  async function copy(button) {
    const shownText = button.previousElementSibling;
    try {
      await navigator.clipboard.writeText(shownText.textContent);
    } catch { // not a secure context
      getSelection().selectAllChildren(shownText);
      document.execCommand("copy");
      getSelection().empty();
    }
    button.classList.add("copied");
    setTimeout(() => button.classList.remove("copied"), 2_000);
    announce("Copied.");
  }

  // -- search: hits below the field, while it is written ---------------------------------------------------------------------------

  const SEARCH_AFTER = 150;
  let asking = null;

  async function find() {
    const q = byId("q").value.trim();
    asking?.abort();
    const { signal } = asking = new AbortController();
    await new Promise((wait) => { setTimeout(wait, SEARCH_AFTER); });
    if (signal.aborted) return;
    if (q.length < 2) { showFound([]); return; }
    const url = new URL(root.dataset.search, location.href);
    url.searchParams.set("q", q);
    try {
      const { answer, content } = await ask(url, { signal });
      if (!answer.ok || !content) return;
      settle(content, answer.url);
      if (content.dataset.page === "search") showFound([...content.querySelectorAll(".hits > li")].slice(0, 20));
      else showFound([make("li", {}, make("a", { href: answer.url }, content.dataset.title))]); // the only hit is opened at once
    } catch { /* a newer question, or no server */ }
  }

  function showFound(hits) {
    byId("found").replaceChildren(...hits);
    byId("found").hidden = !hits.length;
    if (hits.length) announce(`${hits.length} found.`);
  }

  function startSearch() {
    const form = byId("q")?.form;
    if (!form) return;
    form.addEventListener("input", find);
    byId("found").addEventListener("mousedown", (event) => event.preventDefault()); // the field keeps the focus until the click
    form.addEventListener("focusout", (event) => { if (!form.contains(event.relatedTarget)) showFound([]); });
    form.addEventListener("keydown", (event) => {
      const places = [byId("q"), ...byId("found").querySelectorAll("a")];
      const step = { ArrowDown: 1, ArrowUp: places.length - 1 }[event.key];
      if (event.key === "Escape") document.activeElement.blur();
      if (!step || event.isComposing) return;
      event.preventDefault();
      places[(places.indexOf(document.activeElement) + step) % places.length].focus();
    });
  }

  // -- saved views: a name for a query, in this browser; a view is an address, so it is shared by sending it ----------------------

  function views() { try { return JSON.parse(kept.get("views")) ?? []; } catch { return []; } }

  function keepView(name, query) {
    const others = views().filter((one) => one.name !== name);
    kept.set("views", JSON.stringify(query === undefined ? others : [...others, { name, query }].slice(-20)));
    showViews();
  }

  function showViews() {
    main().querySelector("[data-saved-views]")?.replaceChildren(...views().flatMap(({ name, query }) => [
      make("a", { href: query || "?", ...(query === location.search && { "aria-current": "page" }) }, name),
      make("button", { type: "button", class: "plain", "data-forget": name, "aria-label": `Forget the view ${name}` }, "×"),
    ]));
  }

  // -- keys -----------------------------------------------------------------------------------------------------------------------

  let leading = -Infinity; // when `g` was pressed

  function help() {
    byId("no-keys").checked = kept.get("keys") === "off";
    byId("help").showModal();
  }

  function stepRow(step) {
    const rows = [...main().querySelectorAll(ROWS)].filter(inRow);
    const at = rows.findIndex((row) => row.contains(document.activeElement));
    const row = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + step, 0), rows.length - 1)];
    const place = row && (row.querySelector("th a[href], h2 a[href], a[href]") ?? inRow(row));
    place?.focus();
    row?.scrollIntoView({ block: "nearest" });
  }

  function keys(event) {
    const target = event.target instanceof Element ? event.target : document.body;
    if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (target.closest("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]") || document.querySelector("dialog[open]")) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { if (stepBox(event, event.key === "ArrowDown" ? 1 : -1)) event.preventDefault(); return; }
    if (event.key.length !== 1 || kept.get("keys") === "off") return;
    const after = performance.now() - leading < 3_000;
    leading = -Infinity;
    const screen = after && document.querySelector(`.nav a[data-go="${CSS.escape(event.key)}"]`);
    if (screen) { screen.click(); return; }
    const does = {
      "/": () => { byId("q")?.focus(); byId("q")?.select(); }, g: () => { leading = performance.now(); }, j: () => stepRow(1), k: () => stepRow(-1),
      x: () => document.activeElement?.closest("tr")?.querySelector(".pick input")?.click(), p: pause, r: () => load().then(() => apply(true)), t: () => showTheme(true), "?": help,
    }[event.key];
    if (does) { event.preventDefault(); does(); }
  }

  // -- the page ---------------------------------------------------------------------------------------------------------------------

  function click(event) {
    const target = event.target instanceof Element ? event.target : null;
    const plain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
    const link = target?.closest("a[data-confirm]");
    const button = target?.closest("button");
    if (link && plain) { event.preventDefault(); confirm(link.href); }
    else if (button?.matches(".copy")) copy(button);
    else if (button?.dataset.forget !== undefined) keepView(button.dataset.forget);
    else if (button?.dataset.pick !== undefined) pick(button.dataset.pick, button.form);
    else if (button?.id === "theme") showTheme(true);
    else if (button?.id === "keys") help();
    else if (target?.closest("#asked form a.button") && plain) { event.preventDefault(); byId("confirm").close(); }
    else if (button && button.parentElement?.id === "status") { if (shown.act) shown.act(); else pause(); }
    choose(event);
  }

  /** A list's own buttons ask for a confirmation too. */
  function submit(event) {
    const form = event.target;
    if (form.id === "save-view") {
      event.preventDefault();
      keepView(form.elements.name.value.trim(), location.search);
      form.closest("details").open = false;
      form.reset();
      return;
    }
    const url = new URL(event.submitter?.getAttribute("formaction") ?? form.getAttribute("action") ?? "", location.href);
    if (form.method !== "get" || !form.matches(".choose")) return;
    event.preventDefault();
    url.search = new URLSearchParams(new FormData(form)).toString();
    confirm(url.href);
  }

  /** After each change of the page. */
  function enhance() {
    setClock();
    tick();
    showChosen();
    showViews();
  }

  function start() {
    showTheme();
    enhance();
    startSearch();
    document.addEventListener("click", click);
    document.addEventListener("submit", submit);
    document.addEventListener("keydown", keys);
    document.addEventListener("close", () => apply(), true); // of a dialog
    byId("no-keys")?.addEventListener("change", (event) => kept.set("keys", event.target.checked ? "off" : "on"));
    document.addEventListener("mouseover", localTime);
    addEventListener("pointerdown", () => { pressed = true; }, true);
    const released = () => { pressed = false; setTimeout(apply); };
    for (const name of ["pointerup", "pointercancel"]) addEventListener(name, released, true);
    addEventListener("blur", released);
    document.addEventListener("selectionchange", () => { if (loaded.ready && !isBusy()) apply(); });
    addEventListener("storage", () => showTheme());
    setInterval(everySecond, 1_000);
    if (!root.dataset.stream || !Object.keys(wants()).length) return; // a page that nothing changes
    document.addEventListener("visibilitychange", visibility);
    addEventListener("pagehide", () => rest(""));
    addEventListener("pageshow", (event) => { if (event.persisted) wake(true); });
    wake(false);
  }
  document.addEventListener("DOMContentLoaded", start);
})();
