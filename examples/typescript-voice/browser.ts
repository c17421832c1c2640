import { joinVoice, type VoiceCall } from "@purser/sdk";

const element = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
const [connect, talk, end, said, cost, notice] = ["connect", "talk", "end", "said", "cost", "notice"].map(element) as [
  HTMLElement, HTMLButtonElement, HTMLButtonElement, HTMLElement, HTMLElement, HTMLElement];
const left = element("left");
let call: VoiceCall | undefined, sessionID = "", alive = 0;

await showState();
talk.onclick = start;
end.onclick = () => hangUp();
addEventListener("pagehide", () => sessionID && navigator.sendBeacon(`/sessions/${sessionID}/end`));

async function start(): Promise<void> {
  talk.disabled = true;
  notice.hidden = true;
  said.replaceChildren();
  const session = await ask("/sessions", "POST");
  if (!session) return void (talk.disabled = false);
  sessionID = session.id;
  try {
    call = await joinVoice(session.client, { onEvent: show, onEnd: () => hangUp() });
    end.disabled = false;
    const stay = () => ask(`/sessions/${session.id}/alive`, "POST");
    void stay();
    alive = window.setInterval(stay, 8000);
  } catch (error) {
    tell({ text: error instanceof Error ? error.message : String(error) });
    await hangUp();
  }
}

/** show writes down what the model says, and what it has cost. */
async function show(event: { type: string } & Record<string, any>): Promise<void> {
  if (event.type === "response.output_audio_transcript.done") {
    const line = document.createElement("li");
    line.className = "assistant";
    line.textContent = event.transcript;
    said.append(line);
  }
  if (event.type === "response.done" || event.type === "output_audio_buffer.stopped") await showCost();
}

async function showCost(): Promise<void> {
  const session = await ask(`/sessions/${sessionID}`);
  if (session) cost.textContent = `${session.replies === 1 ? "1 reply" : `${session.replies} replies`}, ${session.charged} charged`;
  await showState();
}

async function hangUp(): Promise<void> {
  call?.end();
  call = undefined;
  clearInterval(alive);
  end.disabled = true;
  if (sessionID) {
    const id = sessionID;
    await ask(`/sessions/${id}/end`, "POST");
    await showCost();
    sessionID = "";
  }
  talk.disabled = false;
}

async function showState(): Promise<void> {
  const state = await ask("/state");
  connect.hidden = state?.connected;
  talk.hidden = end.hidden = !state?.connected;
  left.textContent = state?.left ? `${state.left} left` : "";
}

async function ask(path: string, method = "GET"): Promise<any> {
  const body = await fetch(path, { method }).then((response) => response.json(), () => ({ notice: { text: "No answer. Try again." } }));
  if (!body.notice) return body;
  tell(body.notice);
}

function tell({ text, url, link }: { text: string; url?: string; link?: string }): void {
  notice.textContent = `${text} `;
  if (url) notice.append(Object.assign(document.createElement("a"), { href: url, textContent: link }));
  notice.hidden = false;
}
