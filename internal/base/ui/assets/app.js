// Shows times in the zone and language of the reader. The server writes them in UTC, which the title keeps. Also in parts
// of the page that arrive later.
"use strict";
(() => {
  const days = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
  const years = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });
  const hours = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
  const seconds = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });

  const localize = (time) => {
    const at = new Date(time.dateTime);
    const text = time.textContent.trim();
    if (time.title || Number.isNaN(at.getTime()) || !/T/.test(time.dateTime)) {
      return; // done before, or a day, which has no zone
    }
    time.title = text.includes("UTC") ? text : `${text} UTC`;
    const day = /\b\d{4}\b/.test(text) ? years : days;
    const clock = /\d:\d\d:\d\d/.test(text) ? seconds : hours;
    time.textContent = /\d:\d\d/.test(text) ? `${day.format(at)}, ${clock.format(at)}` : day.format(at);
  };
  const sweep = (root) => {
    root.querySelectorAll?.("time[datetime]").forEach(localize);
    root.querySelectorAll?.("th").forEach((head) => {
      // A table without times has days, which end at midnight UTC for every reader.
      if (head.textContent.endsWith(" (UTC)") && head.closest("table").querySelector("time")) {
        head.textContent = head.textContent.slice(0, -" (UTC)".length);
      }
    });
  };
  sweep(document);
  new MutationObserver((changes) => changes.forEach((change) => change.addedNodes.forEach((node) => {
    if (node.nodeType === Node.ELEMENT_NODE) {
      sweep(node.parentNode ?? node);
    }
  }))).observe(document.body, { childList: true, subtree: true });
})();

// The search over any page. The server answers with the list of results, as HTML of its own templates.
(() => {
  const dialog = document.getElementById("palette");
  const opener = document.querySelector("[data-palette]");
  if (!dialog || !opener) {
    return;
  }
  const input = dialog.querySelector("input");
  const results = document.getElementById("palette-results");
  let latest = 0;
  let timer = 0;

  const search = async () => {
    const mine = ++latest;
    const response = await fetch(`/search?part=1&q=${encodeURIComponent(input.value.trim())}`);
    if (mine !== latest) {
      return; // a later one is on its way
    }
    if (!response.ok || response.redirected) {
      location.assign("/search"); // the session has ended: sign in there
      return;
    }
    results.innerHTML = await response.text();
  };
  const open = () => {
    if (!dialog.open) {
      dialog.showModal();
      input.select();
      search();
    }
  };
  const links = () => [...results.querySelectorAll("a")];

  opener.addEventListener("click", (event) => {
    event.preventDefault();
    open();
  });
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      open();
    }
  });
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(search, 120);
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) {
      dialog.close();
    }
  });
  dialog.addEventListener("keydown", async (event) => {
    const list = links();
    const at = list.indexOf(document.activeElement);
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const next = event.key === "ArrowDown" ? at + 1 : at - 1;
      (list[next] ?? (next < 0 ? input : list.at(-1)))?.focus();
    } else if (event.key === "Enter" && document.activeElement === input) {
      event.preventDefault();
      clearTimeout(timer);
      await search();
      links()[0]?.click();
    }
  });
})();
