// Streams answers into the page. Without this script the form works, too, and shows whole answers.
const form = document.querySelector("#ask");
form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const field = form.elements.message, button = form.querySelector("button"), notice = document.querySelector("#notice");
  const question = field.value;
  const body = new URLSearchParams(new FormData(form));
  const add = (role, text) => {
    const item = document.createElement("li");
    item.className = role;
    item.textContent = text;
    document.querySelector("#messages").append(item);
    return item;
  };
  const asked = add("user", question), answer = add("assistant", "");
  const show = (update) => {
    if (update.text) answer.textContent += update.text;
    if (update.bill) document.querySelector("#bill").textContent = update.bill;
    if (update.left) document.querySelector("#left").textContent = update.left;
    if (update.notice) {
      notice.textContent = update.notice.text + " ";
      if (update.notice.url) {
        const link = document.createElement("a");
        link.href = update.notice.url;
        link.textContent = update.notice.link;
        notice.append(link);
      }
      notice.hidden = false;
      asked.remove();
      answer.remove();
      field.value = question;
    }
  };
  field.value = "";
  button.disabled = notice.hidden = true;
  try {
    const response = await fetch("/messages", { method: "POST", headers: { Accept: "application/x-ndjson" }, body });
    if (!response.ok || response.redirected) return location.reload();
    const decoder = new TextDecoder();
    let rest = "";
    for (let reader = response.body.getReader(), part; !(part = await reader.read()).done;) {
      const lines = (rest + decoder.decode(part.value, { stream: true })).split("\n");
      rest = lines.pop();
      lines.forEach((line) => show(JSON.parse(line)));
    }
  } catch {
    show({ notice: { text: "The connection broke. Try again." } });
  } finally {
    button.disabled = false;
    field.focus();
  }
});
