// The playground of the developer console: it streams the answers of one or two models side by side, keeps their
// conversations, and shows what each answer costs. Without it, the form makes one call and shows its answer.
(() => {
  "use strict";

  const maxImageBytes = 3 << 20;
  const charsPerToken = 4; // of the estimate that ticks; the bill replaces it
  const form = document.getElementById("form");
  if (!form || !form.dataset.stream) return;
  const part = (id) => document.getElementById(id);
  const field = (name) => form.elements.namedItem(name);
  const create = (name, className, text) => {
    const element = document.createElement(name);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  // dollars shows an estimate; amounts of bills come from the server as text.
  const dollars = (amount) => "≈ $" + amount.toFixed(amount < 0.01 ? 6 : 4);
  const seconds = (ms) => (ms / 1000).toFixed(ms < 10000 ? 2 : 1) + " s";

  const lanes = []; // one for each model
  let images = []; // data URLs of the next message
  let running = 0;

  part("result")?.remove();

  const optionOf = (select) => select.selectedOptions[0];
  const fits = (option, what) => option.dataset[what] === "true";

  // syncModels shows only what the chosen models take.
  const syncModels = () => {
    const chosen = [field("model"), field("second")].filter((s) => s.value).map(optionOf);
    for (const [name, what] of [["temperature", "temperature"], ["tools", "tools"], ["image", "vision"]]) {
      const takes = chosen.some((option) => fits(option, what));
      field(name).disabled = !takes;
      const hint = part(name + "-hint");
      if (hint) hint.textContent = takes ? hint.dataset.hint : "Not supported by this model.";
    }
    part("lanes").dataset.count = field("second").value ? "2" : "1";
  };

  const makeLane = (number) => {
    const element = create("section", "lane");
    const head = create("h2", "lane-model");
    head.id = "lane-" + number;
    element.setAttribute("aria-labelledby", head.id);
    const turns = create("ol", "turns");
    element.append(head, turns);
    part("lanes").append(element);
    return { element, head, turns, messages: [], model: "", callID: "", stopping: false, busy: false };
  };

  // prepareLanes has one lane for each chosen model. Another model goes on with the conversation of its lane.
  const prepareLanes = () => {
    const models = [field("model").value, field("second").value].filter(Boolean);
    while (lanes.length < models.length) lanes.push(makeLane(lanes.length));
    lanes.forEach((lane, i) => {
      lane.element.hidden = i >= models.length;
      lane.model = models[i] || "";
      lane.head.textContent = lane.model;
      lane.option = optionOf(i === 0 ? field("model") : field("second"));
    });
    return lanes.slice(0, models.length);
  };

  const addTurn = (lane, who, text, pictures = []) => {
    const turn = create("li", "turn " + who);
    turn.append(create("p", "turn-who", who === "user" ? "You" : who === "tool" ? "Tool result" : lane.model));
    const body = create("p", "turn-text", text);
    turn.append(body);
    for (const url of pictures) {
      const image = create("img", "turn-image");
      image.src = url;
      image.alt = "Image that you sent";
      turn.append(image);
    }
    lane.turns.append(turn);
    return { turn, body };
  };

  const showProblem = (text, field) => {
    part("problem").textContent = text;
    part("problem").hidden = !text;
    field?.focus();
  };

  // readTools returns the tools, or undefined if there are none. It throws for text that is no array.
  const readTools = () => {
    const text = field("tools").value.trim();
    if (!text) return undefined;
    let list;
    try { list = JSON.parse(text); } catch (error) { throw new Error("Tools: " + error.message); }
    if (!Array.isArray(list)) throw new Error("Tools: enter a JSON array of functions.");
    return list;
  };

  // pendingTools are the calls of the last answer, which need results.
  const pendingTools = (lane) => lane.messages.at(-1)?.tool_calls || [];

  // nextMessages returns what the text means in a lane: a message of the user, or the result of each called tool.
  const nextMessages = (lane, text) => {
    const calls = pendingTools(lane);
    if (calls.length) return calls.map((call) => ({ role: "tool", tool_call_id: call.id, content: text }));
    if (!images.length || !fits(lane.option, "vision")) return [{ role: "user", content: text }];
    return [{
      role: "user",
      content: [{ type: "text", text }, ...images.map((url) => ({ type: "image_url", image_url: { url } }))],
    }];
  };

  const requestOf = (lane, messages) => {
    const request = { model: lane.model };
    const system = field("system").value.trim();
    request.messages = (system ? [{ role: "system", content: system }] : []).concat(messages);
    const limit = parseInt(field("max_tokens").value, 10);
    if (limit > 0) request.max_tokens = limit;
    const temperature = field("temperature").value.trim();
    if (temperature && fits(lane.option, "temperature")) request.temperature = Number(temperature.replace(",", "."));
    const effort = field("effort").value;
    if (effort && (lane.option.dataset.efforts || "").split(" ").includes(effort)) request.reasoning_effort = effort;
    const tools = readTools();
    if (tools && fits(lane.option, "tools")) request.tools = tools;
    return { account: field("account").value, feature: field("feature").value, request };
  };

  const post = (url, body) => fetch(url, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });

  // readEvents yields the data of each server-sent event as it comes.
  async function* readEvents(stream) {
    const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line.startsWith("data: ")) yield line.slice(6).trimEnd();
    }
  }

  // addToolCall joins a piece of a tool's call to those before it.
  const addToolCall = (calls, piece) => {
    const call = calls[piece.index ?? 0] ||= { id: "", type: "function", function: { name: "", arguments: "" } };
    if (piece.id) call.id = piece.id;
    if (piece.function?.name) call.function.name += piece.function.name;
    if (piece.function?.arguments) call.function.arguments += piece.function.arguments;
    if (piece.extra_content) call.extra_content = piece.extra_content;
  };

  const showRefusal = (turn, error, receipt) => {
    turn.classList.add("refused");
    const note = create("p", "note warn", (error.message || "The call was refused.") + " ");
    note.append(create("code", "", error.code || "error"));
    if (/^https?:\/\//.test(error.doc_url || "")) {
      const link = create("a", "", "What to do");
      link.href = error.doc_url;
      note.append(" · ", link);
    }
    if (receipt) {
      const link = create("a", "", "Receipt");
      link.href = receipt;
      note.append(" · ", link);
    }
    turn.append(note);
  };

  // run makes one call in a lane, and returns what to announce.
  const run = async (lane, added) => {
    const { turn, body } = addTurn(lane, "assistant", "");
    const figures = create("p", "figures num");
    const cost = create("strong", "", dollars(0)), timing = create("span", "", "waiting…");
    figures.append(cost, " · ", timing);
    turn.append(figures);
    turn.setAttribute("aria-busy", "true");
    lane.busy = true;
    lane.callID = "";
    lane.stopping = false;
    const messages = lane.messages.concat(added);
    const sent = requestOf(lane, messages);
    const price = lane.option.dataset, sentChars = JSON.stringify(sent.request.messages).replace(/data:[^"]*/g, "").length;
    // estimate returns dollars; the prices are in micro-cents for a million tokens.
    const estimate = (chars) => (sentChars * price.input + chars * price.output) / charsPerToken / 1e14;
    const began = performance.now();
    let first = 0, text = "", final = null, failed = null;
    const calls = [];
    const showTimes = () => {
      const before = first ? "first byte " + seconds(first) + " · " : "";
      timing.textContent = before + seconds(performance.now() - began);
    };
    const tick = setInterval(() => {
      showTimes();
      if (!final) cost.textContent = dollars(estimate(text.length));
    }, 100);
    try {
      const answer = await post(form.dataset.stream, sent);
      if (!(answer.headers.get("Content-Type") || "").startsWith("text/event-stream")) {
        const refusal = await answer.json().catch(() => ({}));
        failed = refusal.error || { message: "The request failed (" + answer.status + "). Reload the page and try again." };
        showRefusal(turn, failed, refusal.receipt);
        return lane.model + ": refused. " + (failed.message || "");
      }
      lane.callID = answer.headers.get("Playground-Call") || "";
      if (lane.stopping) stop(lane);
      for await (const data of readEvents(answer.body)) {
        if (data === "[DONE]") break;
        const event = JSON.parse(data);
        if (event.error) failed = event.error;
        if (event.svc_final) final = event.svc_final;
        const delta = event.choices?.[0]?.delta;
        if (!delta) continue;
        if (!first && (delta.content || delta.tool_calls)) first = performance.now() - began;
        if (delta.content) body.textContent = text += delta.content;
        for (const piece of delta.tool_calls || []) addToolCall(calls, piece);
      }
    } catch (error) {
      failed = failed || { code: "", message: "The connection broke off. The request log shows what was billed." };
    } finally {
      clearInterval(tick);
      showTimes();
      lane.busy = false;
      turn.removeAttribute("aria-busy");
    }
    const asked = calls.filter(Boolean);
    if (text || asked.length) {
      const reply = { role: "assistant", content: text || null };
      if (asked.length && !failed) reply.tool_calls = asked;
      lane.messages = reply.content === null && !reply.tool_calls ? lane.messages : messages.concat(reply);
    }
    if (asked.length) turn.insertBefore(create("pre", "turn-tools", asked.map((call) =>
      call.function.name + "(" + call.function.arguments + ")").join("\n")), figures);
    let spoken = lane.model + ": " + (text || "asks for " + asked.map((call) => call.function.name).join(", "));
    if (failed) {
      const stopped = failed.code === "call_stopped";
      if (stopped) turn.insertBefore(create("p", "hint", "Stopped. You pay for what was delivered."), figures);
      else showRefusal(turn, failed);
      spoken = stopped ? lane.model + ": stopped." : lane.model + ": failed. " + (failed.message || "");
    }
    const bill = final?.svc;
    cost.textContent = bill ? bill.user_charge_display : final ? "charge pending" : "not billed";
    if (final?.settlement === "estimated") cost.textContent += " (estimated)";
    if (bill) spoken += " Cost: " + bill.user_charge_display + ".";
    const usage = final?.usage;
    if (usage) figures.append(" · " + usage.prompt_tokens + " tokens in, " + usage.completion_tokens + " out");
    if (lane.callID && final) {
      const link = create("a", "", "Receipt");
      link.href = form.dataset.requests + lane.callID;
      figures.append(" · ", link);
    }
    return spoken;
  };

  const stop = (lane) => {
    lane.stopping = true;
    if (!lane.callID) return; // its first event brings the id
    fetch(form.dataset.stop, {
      method: "POST",
      body: new URLSearchParams({ account: field("account").value, call: lane.callID }),
    }).catch(() => showProblem("The call could not be stopped. Try again."));
  };

  const setRunning = (count) => {
    running = count;
    part("run").disabled = count > 0;
    part("stop").disabled = count === 0;
  };

  const send = async () => {
    if (running) return;
    showProblem("");
    const text = field("prompt").value;
    if (!text.trim()) return showProblem("Enter a prompt.", field("prompt"));
    try { readTools(); } catch (error) { return showProblem(error.message, field("tools")); }
    const active = prepareLanes();
    part("empty")?.remove();
    const turns = active.map((lane) => {
      const added = nextMessages(lane, text);
      addTurn(lane, added[0].role, text, added[0].role === "user" && fits(lane.option, "vision") ? images : []);
      return [lane, added];
    });
    field("prompt").value = "";
    clearImages();
    part("code").hidden = true;
    setRunning(active.length);
    part("announce").textContent = "Answering…";
    const spoken = await Promise.all(turns.map(async ([lane, added]) => {
      try { return await run(lane, added); } finally { setRunning(running - 1); }
    }));
    part("announce").textContent = spoken.join(" ");
    part("prompt-label").textContent = active.some((lane) => pendingTools(lane).length) ? "Result of the tool" : "Prompt";
    field("prompt").focus();
  };

  // Images come from a file or the clipboard.
  const clearImages = () => {
    images = [];
    field("image").value = "";
    part("images").replaceChildren();
  };
  const addImage = async (file) => {
    if (!/^image\/(png|jpeg|gif|webp)$/.test(file.type)) return showProblem("Image: use PNG, JPEG, GIF or WebP.");
    if (file.size > maxImageBytes || images.length >= 4) return showProblem("Image: at most 4 of 3 MB each.");
    const url = await new Promise((resolve, reject) => {
      const reader = new FileReader();
      reader.onload = () => resolve(reader.result);
      reader.onerror = () => reject(reader.error);
      reader.readAsDataURL(file);
    });
    images.push(url);
    const item = create("li"), image = create("img", "turn-image"), remove = create("button", "link", "Remove");
    image.src = url;
    image.alt = file.name || "Pasted image";
    remove.type = "button";
    remove.addEventListener("click", () => {
      images = images.filter((other) => other !== url);
      item.remove();
    });
    item.append(image, remove);
    part("images").append(item);
    showProblem("");
  };

  // openCode shows the panel of the code, which keeps its size when the code comes.
  const openCode = () => {
    const panel = part("code"), tabs = create("div", "code-choices"), pre = create("pre");
    const code = create("code", "", "Writing the code…"), copy = create("button", "small", "Copy");
    pre.tabIndex = 0;
    pre.id = "code-panel";
    pre.append(code);
    copy.type = "button";
    copy.disabled = true;
    copy.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        copy.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        copy.textContent = "Selected: press Ctrl+C";
      }
      setTimeout(() => { copy.textContent = "Copy"; }, 2000);
    });
    panel.replaceChildren(create("h2", "", "The same call in code"), tabs, pre, copy);
    panel.hidden = false;
    return { tabs, pre, code, copy };
  };

  // showCode has the server write the next call as code, and shows it in tabs.
  const showCode = async () => {
    const lane = prepareLanes()[0];
    const text = field("prompt").value.trim();
    const added = text || !lane.messages.length ? nextMessages(lane, text || "Hello") : [];
    const messages = added.length ? lane.messages.concat(added) : lane.messages.filter((m, i, all) =>
      i < all.length - 1 || m.role !== "assistant"); // the call that led to the last answer
    let request;
    try { request = requestOf(lane, messages); } catch (error) { return showProblem(error.message, field("tools")); }
    const { tabs, pre, code, copy } = openCode();
    let list;
    try {
      const answer = await post(form.dataset.code, request);
      if (!answer.ok) throw new Error("The code could not be made (" + answer.status + ").");
      list = await answer.json();
    } catch (error) {
      code.textContent = part("announce").textContent = error.message;
      return;
    }
    tabs.setAttribute("role", "tablist");
    tabs.setAttribute("aria-label", "Language");
    pre.setAttribute("role", "tabpanel");
    copy.disabled = false;
    const buttons = list.map((item, i) => {
      const button = create("button", "", item.Language);
      button.type = "button";
      button.id = "code-" + i;
      button.setAttribute("role", "tab");
      button.setAttribute("aria-controls", pre.id);
      button.addEventListener("click", () => choose(i));
      tabs.append(button);
      return button;
    });
    const choose = (at) => {
      buttons.forEach((button, i) => {
        button.setAttribute("aria-selected", String(i === at));
        button.tabIndex = i === at ? 0 : -1;
      });
      pre.setAttribute("aria-labelledby", buttons[at].id);
      code.textContent = list[at].Text;
    };
    tabs.addEventListener("keydown", (event) => {
      const at = buttons.indexOf(document.activeElement);
      const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
      if (at < 0 || to === undefined) return;
      event.preventDefault();
      const next = (to + buttons.length) % buttons.length;
      choose(next);
      buttons[next].focus();
    });
    choose(0);
    buttons[0].focus();
  };

  form.addEventListener("submit", (event) => { event.preventDefault(); send(); });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      send();
    }
  });
  part("stop").addEventListener("click", () => lanes.filter((lane) => lane.busy).forEach(stop));
  part("clear").addEventListener("click", () => {
    if (running) return;
    for (const lane of lanes) {
      lane.messages = [];
      lane.turns.replaceChildren();
    }
    part("prompt-label").textContent = "Prompt";
    part("announce").textContent = "New conversation.";
    field("prompt").focus();
  });
  part("show-code").addEventListener("click", showCode);
  field("image").addEventListener("change", (event) => [...event.target.files].forEach(addImage));
  field("prompt").addEventListener("paste", (event) => {
    const files = [...event.clipboardData.files].filter((file) => file.type.startsWith("image/"));
    if (!files.length || field("image").disabled) return;
    event.preventDefault();
    files.forEach(addImage);
  });
  for (const name of ["model", "second"]) field(name).addEventListener("change", syncModels);
  for (const name of ["temperature", "tools", "image"]) {
    const hint = part(name + "-hint");
    if (hint) hint.dataset.hint = hint.textContent;
  }
  syncModels();
})();
