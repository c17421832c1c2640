// What lists add with JavaScript: keys (j, k, Enter, Escape), a drawer that shows a row beside the list, and the number
// of new rows while a list is followed. Without it, a row is a link to its page.
(() => {
  "use strict";

  const drawer = document.querySelector("[data-drawer]");
  const news = document.querySelector("[data-list-news]");
  const list = document.querySelector("[data-list]");
  if (!list) return;

  const rowLinks = "tbody th a, a[data-row]";
  // A folded group is a stop among the rows: its own are not shown.
  const links = () =>
    [...list.querySelectorAll(`${rowLinks}, summary`)].filter((e) => !e.closest("details:not([open]) > :not(summary)"));
  let opener = "";

  // move focuses the link of the next or of the previous row.
  const move = (by) => {
    const all = links();
    const at = all.indexOf(document.activeElement);
    const next = all[at < 0 ? 0 : Math.min(Math.max(at + by, 0), all.length - 1)];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  };

  const close = () => {
    if (!drawer || drawer.childElementCount === 0) return;
    drawer.replaceChildren();
    document.getElementById(opener)?.focus();
  };

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      close();
      return;
    }
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
  });

  list.addEventListener("click", (event) => {
    const link = event.target.closest(rowLinks);
    if (link) opener = link.id;
  });

  if (drawer) {
    drawer.addEventListener("click", (event) => {
      if (!event.target.closest("[data-close]")) return;
      event.preventDefault();
      close();
    });
    new MutationObserver(() => drawer.querySelector("[data-close]")?.focus()).observe(drawer, { childList: true });
  }

  // While the list is followed its rows are replaced: say how many are new, and only then.
  const ids = () => new Set([...list.querySelectorAll("tbody tr")].map((row) => row.id));
  let known = ids();
  new MutationObserver(() => {
    const now = ids();
    const added = [...now].filter((id) => !known.has(id));
    if (now.size > 0) known = now;
    if (added.length === 0) return;
    for (const id of added) document.getElementById(id)?.classList.add("new-row");
    news.textContent = added.length === 1 ? "1 new row" : `${added.length} new rows`;
  }).observe(list, { childList: true });
})();
