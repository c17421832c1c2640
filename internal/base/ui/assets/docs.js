// What pages of the documentation add with JavaScript: language tabs, copy buttons, keys for the search, and Scalar on
// the reference. Without it, all examples are shown one below the other.
(() => {
  "use strict";

  const languageKey = "purser-docs-language";

  // readLanguage returns the language that was chosen last, or "". Storage may be denied.
  const readLanguage = () => {
    try { return localStorage.getItem(languageKey) || ""; } catch { return ""; }
  };
  const saveLanguage = (language) => {
    try { localStorage.setItem(languageKey, language); } catch { /* the choice holds on this page */ }
  };

  const create = (name, attributes, text) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text) element.textContent = text;
    return element;
  };

  // makeTabs turns a group of examples into tabs (ARIA Authoring Practices, tabs with automatic activation).
  const groups = [];
  const makeTabs = (group, number) => {
    const panels = [...group.querySelectorAll(":scope > figure")];
    const list = create("div", { role: "tablist", "aria-label": "Language" });
    const tabs = panels.map((panel, i) => {
      const id = `tab-${number}-${i}`;
      const tab = create("button", { type: "button", role: "tab", id, "aria-controls": `${id}-panel` },
        panel.querySelector("figcaption").textContent);
      tab.dataset.lang = panel.dataset.lang;
      panel.id = `${id}-panel`;
      panel.setAttribute("role", "tabpanel");
      panel.setAttribute("aria-labelledby", id);
      tab.addEventListener("click", () => choose(tab));
      list.append(tab);
      return tab;
    });
    list.addEventListener("keydown", (event) => {
      const at = tabs.indexOf(document.activeElement);
      const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (at < 0 || to === undefined) return;
      event.preventDefault();
      const tab = tabs[(to + tabs.length) % tabs.length];
      choose(tab);
      tab.focus();
    });
    group.classList.add("with-tabs");
    group.prepend(list);
    groups.push({ tabs, panels });
  };

  // show shows one language in every group that has it, and the first one in a group that shows nothing yet.
  const show = (language) => {
    for (const { tabs, panels } of groups) {
      let index = tabs.findIndex((tab) => tab.dataset.lang === language);
      if (index < 0) index = Math.max(0, tabs.findIndex((tab) => tab.getAttribute("aria-selected") === "true"));
      tabs.forEach((tab, i) => {
        tab.setAttribute("aria-selected", String(i === index));
        tab.tabIndex = i === index ? 0 : -1;
        panels[i].hidden = i !== index;
      });
    }
  };

  // choose shows the language of a tab, and keeps the tab where it is on the screen: groups above it may change height.
  const choose = (tab) => {
    const before = tab.getBoundingClientRect().top;
    show(tab.dataset.lang);
    saveLanguage(tab.dataset.lang);
    window.scrollBy({ top: tab.getBoundingClientRect().top - before, behavior: "instant" });
  };

  // copyText copies text also where the clipboard is denied, as on a page without TLS.
  const copyText = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = create("textarea", { "aria-hidden": "true", class: "hidden" });
      area.value = text;
      document.body.append(area);
      area.select();
      const copied = document.execCommand("copy");
      area.remove();
      if (!copied) throw new Error("not copied");
    }
  };

  const addCopyButton = (figure) => {
    const button = create("button", { type: "button", class: "copy" }, "Copy");
    const status = create("span", { role: "status", class: "hidden" });
    button.addEventListener("click", async () => {
      try {
        await copyText(figure.querySelector("code").textContent.replace(/\n$/, ""));
        button.textContent = status.textContent = "Copied";
      } catch {
        button.textContent = status.textContent = "Select the text to copy it";
      }
      setTimeout(() => { button.textContent = "Copy"; status.textContent = ""; }, 2000);
    });
    figure.append(button, status);
  };

  // addSearchKeys: "/" goes to the search, arrows move through the results, Escape closes them.
  const addSearchKeys = (form) => {
    const input = form.querySelector("input");
    const found = form.querySelector("#found");
    document.addEventListener("keydown", (event) => {
      const typing = event.target.closest("input, textarea, select, [contenteditable]");
      if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
        event.preventDefault();
        input.focus();
      }
    });
    form.addEventListener("keydown", (event) => {
      const stops = [input, ...found.querySelectorAll("a")];
      const at = stops.indexOf(document.activeElement);
      const to = { ArrowDown: at + 1, ArrowUp: at - 1 }[event.key];
      if (event.key === "Escape") {
        found.replaceChildren();
        input.focus();
      } else if (at >= 0 && to >= 0 && to < stops.length && stops.length > 1) {
        event.preventDefault();
        stops[to].focus();
      }
    });
    form.addEventListener("htmx:before:swap", (event) => { // results that come late do not take the focus from earlier ones
      if (found.contains(document.activeElement)) event.preventDefault();
    });
    document.addEventListener("click", (event) => {
      if (!form.contains(event.target)) found.replaceChildren();
    });
  };

  // markContents marks the heading of the table of contents that is being read.
  const markContents = (toc) => {
    const links = new Map([...toc.querySelectorAll("a")].map((a) => [a.hash.slice(1), a]));
    const headings = [...document.querySelectorAll(".prose :is(h2, h3)[id]")];
    const mark = () => {
      const passed = headings.filter((heading) => heading.getBoundingClientRect().top < 120);
      const current = passed.at(-1) || headings[0];
      for (const [id, link] of links) {
        if (current && id === current.id) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
    };
    let waiting = false;
    document.addEventListener("scroll", () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; mark(); });
    }, { passive: true });
    mark();
  };

  // showReference has Scalar take the place of the list of operations. Requests go to the host of this page, whose
  // router serves the whole API: a browser would refuse another host.
  const showReference = (place) => {
    const script = create("script", { src: place.dataset.script });
    script.addEventListener("load", () => {
      const token = place.dataset.token || "";
      const dark = matchMedia("(prefers-color-scheme: dark)").matches;
      place.hidden = false;
      document.getElementById("operations").hidden = true;
      Scalar.createApiReference(place, {
        url: "/openapi.json",
        servers: [{ url: location.origin }],
        authentication: {
          preferredSecurityScheme: "accessToken",
          securitySchemes: { accessToken: { token } },
        },
        defaultHttpClient: { targetKey: "shell", clientKey: "curl" },
        forceDarkModeState: dark ? "dark" : "light",
        hideDarkModeToggle: true,
        hideClientButton: true,
        showDeveloperTools: "never",
        withDefaultFonts: false,
        persistAuth: false,
        telemetry: false,
        agent: { disabled: true },
        mcp: { disabled: true },
        proxyUrl: "",
      });
    });
    document.head.append(script);
  };

  document.querySelectorAll(".code-tabs").forEach(makeTabs);
  show(readLanguage());
  document.querySelectorAll("figure.code").forEach(addCopyButton);
  document.querySelectorAll("[data-search]").forEach(addSearchKeys);
  document.querySelectorAll("nav.toc").forEach(markContents);
  const reference = document.getElementById("reference");
  if (reference) showReference(reference);
})();
