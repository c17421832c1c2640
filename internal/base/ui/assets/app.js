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
