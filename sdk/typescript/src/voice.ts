import type { Connection } from "./connection.js";
import { newError, parseError } from "./errors.js";
import { wait } from "./http.js";
import type {
  CreatedVoiceSession, NewVoiceSession, VoiceClient, VoiceControlEvent, VoiceControlRequest, VoiceSessionState,
  VoiceSessionSummary,
} from "./types.js";

/** When a session ends: when the user has heard the current reply, or at once. */
export type EndWhen = "after_heard" | "immediate";

/** Voice sessions of a connection, for the app's server. The browser calls {@link joinVoice}. */
export class Voice {
  readonly #connection: Connection;

  /** @internal */
  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** start creates a session. Give `session.client` to the browser within 60 seconds, and open `session.control()`. */
  async start(settings: NewVoiceSession): Promise<VoiceSession> {
    const raw = await this.#connection.send<CreatedVoiceSession>(
      { method: "POST", path: "/v1/realtime/sessions", body: settings });
    return new VoiceSession(this.#connection, raw);
  }

  /** get returns a session with the receipt of each billed reply. */
  get(sessionID: string): Promise<VoiceSessionState> {
    return this.#connection.send({ method: "GET", path: `/v1/realtime/sessions/${encodeURIComponent(sessionID)}` });
  }

  /** list returns the connection's latest sessions, newest first. */
  list(): Promise<VoiceSessionSummary[]> {
    return this.#connection.send({ method: "GET", path: "/v1/realtime/sessions" });
  }

  /** end ends a session. */
  async end(sessionID: string, when: EndWhen = "after_heard"): Promise<void> {
    const path = `/v1/realtime/sessions/${encodeURIComponent(sessionID)}/end`;
    await this.#connection.send({ method: "POST", path, body: { when } });
  }
}

/** A voice session on the app's server. */
export class VoiceSession {
  /** The id, `rts_…`. The browser may have it. */
  readonly id: string;
  /** What the browser needs. It holds no secret of the app. */
  readonly client: VoiceClient;
  /** The answer of the API. */
  readonly raw: CreatedVoiceSession;
  readonly #connection: Connection;

  /** @internal */
  constructor(connection: Connection, raw: CreatedVoiceSession) {
    this.id = raw.id;
    this.client = raw.client;
    this.raw = raw;
    this.#connection = connection;
  }

  /**
   * control opens the control channel. It needs a WebSocket that sends headers: that of Node.js 22, Deno and Bun does;
   * for Node.js 20 pass that of the package `ws`.
   */
  control(options: { webSocket?: WebSocketClass } = {}): VoiceControl {
    return new VoiceControl(this.#connection, this.raw.control_url, options.webSocket ?? globalThis.WebSocket as never);
  }

  /** get returns the session with the receipt of each billed reply. */
  get(): Promise<VoiceSessionState> {
    return this.#connection.voice.get(this.id);
  }

  /** end ends the session. */
  end(when: EndWhen = "after_heard"): Promise<void> {
    return this.#connection.voice.end(this.id, when);
  }
}

/** A class of WebSockets that sends headers, as that of `ws`. */
export type WebSocketClass = new (url: string, options: { headers: Record<string, string> }) => Pick<
  WebSocket, "send" | "close" | "readyState" | "addEventListener">;

/**
 * The control channel of a session, on the app's server. Iterate over its events; it reconnects by itself, and ends
 * with the session.
 */
export class VoiceControl implements AsyncIterable<VoiceControlEvent> {
  readonly #connection: Connection;
  readonly #url: string;
  readonly #class: WebSocketClass;
  #socket: InstanceType<WebSocketClass> | undefined;
  #unsent: string[] = [];
  #isClosed = false;

  /** @internal */
  constructor(connection: Connection, url: string, webSocket: WebSocketClass) {
    this.#connection = connection;
    this.#url = url;
    this.#class = webSocket;
  }

  /** send sends an event, when the channel is open. */
  send(event: VoiceControlRequest): void {
    const text = JSON.stringify(event);
    if (this.#socket?.readyState === 1) this.#socket.send(text);
    else this.#unsent.push(text);
  }

  /** answerTool sends the result of a tool call, and lets the model speak about it. */
  answerTool(callID: string, output: unknown): void {
    const text = typeof output === "string" ? output : JSON.stringify(output);
    this.send({ type: "conversation.item.create", item: { type: "function_call_output", call_id: callID, output: text } });
    this.send({ type: "response.create" });
  }

  /** end ends the session. */
  end(when: EndWhen = "after_heard"): void {
    this.send({ type: "svc.session.end", when });
  }

  /** close closes the channel, and not the session. */
  close(): void {
    this.#isClosed = true;
    this.#socket?.close(1000);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<VoiceControlEvent, void, void> {
    try {
      for (let failures = 0; !this.#isClosed; ) {
        const token = await this.#connection.accessToken();
        const socket = new this.#class(this.#url, { headers: { authorization: `Bearer ${token}` } });
        this.#socket = socket;
        const received: VoiceControlEvent[] = [];
        let notify = () => {};
        let code: number | undefined;
        socket.addEventListener("open", () => this.#unsent.splice(0).forEach((text) => socket.send(text)));
        socket.addEventListener("message", (message) => {
          received.push(JSON.parse(String((message as MessageEvent).data)));
          notify();
        });
        socket.addEventListener("error", () => {}); // the event close follows
        socket.addEventListener("close", (event) => {
          code = (event as CloseEvent).code;
          notify();
        });
        while (code === undefined || received.length) {
          const event = received.shift();
          if (event) {
            failures = 0;
            yield event;
            if (event.type === "svc.session.ended") return;
          } else {
            await new Promise<void>((resolve) => notify = resolve);
          }
        }
        if (![1006, 1012, 1013].includes(code) || ++failures > 10) {
          if (code === 1000 || this.#isClosed) return;
          throw newError("connection_error", `The control channel was closed with ${code}.`);
        }
        await wait(0.5 * failures);
      }
    } finally {
      this.close();
    }
  }
}

/** The options of {@link joinVoice}. */
export interface JoinOptions {
  /** The user's microphone. It is asked for if it is missing; null only listens. */
  microphone?: MediaStream | null;
  /** Plays the voice; made if it is missing. */
  audio?: HTMLAudioElement;
  /** Gets the events of the model, such as transcripts. */
  onEvent?: (event: { type: string } & Record<string, any>) => void;
  /** Is called once when the call is over. */
  onEnd?: () => void;
}

/** A running call in a browser. */
export interface VoiceCall {
  /** say sends a text of the user, and lets the model reply. */
  say(text: string): void;
  /** send sends an event to the model. */
  send(event: { type: string } & Record<string, unknown>): void;
  /** end hangs up in this browser. Ask the app's server to end the session as well. */
  end(): void;
}

/**
 * joinVoice connects a browser to a voice session: by WebRTC, or with the mock voice by a WebSocket. Call it after the
 * user has pressed a button, because browsers play no sound before.
 *
 * @param client The `client` of the session, from the app's server.
 */
export async function joinVoice(client: VoiceClient, options: JoinOptions = {}): Promise<VoiceCall> {
  const microphone = options.microphone === undefined
    ? await navigator.mediaDevices.getUserMedia({ audio: true }) : options.microphone;
  const ends: (() => void)[] = [];
  if (options.microphone === undefined) ends.push(() => microphone?.getTracks().forEach((track) => track.stop()));
  const end = () => {
    const steps = ends.splice(0);
    steps.forEach((step) => step());
    if (steps.length) options.onEnd?.();
  };
  ends.push(() => {}); // a call without a microphone has an end, too
  try {
    const join = client.mode === "mock" ? joinMock : joinWebRTC;
    const send = await join(client, microphone, options, ends, end);
    return {
      send,
      end,
      say(text) {
        const content = [{ type: "input_text", text }];
        send({ type: "conversation.item.create", item: { type: "message", role: "user", content } });
        send({ type: "response.create" });
      },
    };
  } catch (error) {
    ends.splice(0).forEach((step) => step());
    throw error;
  }
}

type Send = VoiceCall["send"];
type Join = (
  client: VoiceClient, microphone: MediaStream | null, options: JoinOptions, ends: (() => void)[], end: () => void,
) => Promise<Send>;

const joinWebRTC: Join = async (client, microphone, options, ends, end) => {
  const peer = new RTCPeerConnection();
  ends.push(() => peer.close());
  const channel = peer.createDataChannel("oai-events");
  const unsent: string[] = [];
  channel.onopen = () => unsent.splice(0).forEach((text) => channel.send(text));
  channel.onmessage = ({ data }) => options.onEvent?.(JSON.parse(data));
  channel.onclose = end;
  peer.onconnectionstatechange = () => {
    if (["failed", "closed"].includes(peer.connectionState)) end();
  };
  peer.ontrack = ({ streams }) => {
    const audio = options.audio ?? new Audio();
    audio.srcObject = streams[0] ?? null;
    void audio.play();
  };
  const track = microphone?.getAudioTracks()[0];
  if (track) peer.addTrack(track, microphone!);
  else peer.addTransceiver("audio", { direction: "recvonly" });
  await peer.setLocalDescription(await peer.createOffer());
  const response = await fetch(client.offer_url, {
    method: "POST",
    headers: { authorization: `Bearer ${client.ticket}`, "content-type": "application/sdp" },
    body: peer.localDescription!.sdp,
  });
  if (!response.ok) {
    const body = await response.json().catch(() => null);
    throw parseError({ status: response.status, headers: response.headers, body, clientCredentials: false });
  }
  await peer.setRemoteDescription({ type: "answer", sdp: await response.text() });
  return (event) => {
    const text = JSON.stringify(event);
    if (channel.readyState === "open") channel.send(text);
    else unsent.push(text);
  };
};

const sampleRate = 24_000; // of the mock voice, PCM16 mono

const joinMock: Join = async (client, microphone, options, ends, end) => {
  const socket = new WebSocket(`${client.mock_url}?ticket=${encodeURIComponent(client.ticket)}`);
  ends.push(() => socket.close());
  await new Promise<void>((resolve, reject) => {
    socket.onopen = () => resolve();
    socket.onclose = ({ code }) => reject(newError("invalid_ticket", `The mock voice closed with ${code}.`));
  });
  const send: Send = (event) => socket.send(JSON.stringify(event));
  const context = new AudioContext({ sampleRate });
  ends.push(() => void context.close());
  let playedUntil = 0; // seconds of the context's clock
  socket.onmessage = ({ data }) => {
    const event = JSON.parse(data);
    if (event.type === "response.output_audio.delta") {
      const samples = decodePCM(event.delta);
      const buffer = context.createBuffer(1, samples.length, sampleRate);
      buffer.copyToChannel(samples, 0);
      const source = context.createBufferSource();
      source.buffer = buffer;
      source.connect(context.destination);
      playedUntil = Math.max(playedUntil, context.currentTime);
      source.start(playedUntil);
      playedUntil += buffer.duration;
    }
    options.onEvent?.(event);
  };
  socket.onclose = end;
  if (microphone) {
    const source = context.createMediaStreamSource(microphone);
    // A worklet would need a script of its own address, which a strict content security policy refuses.
    const recorder = context.createScriptProcessor(4096, 1, 1);
    recorder.onaudioprocess = ({ inputBuffer }) => {
      if (socket.readyState === 1) send({ type: "input_audio_buffer.append", audio: encodePCM(inputBuffer.getChannelData(0)) });
    };
    source.connect(recorder).connect(context.destination);
  }
  return send;
};

function decodePCM(text: string): Float32Array<ArrayBuffer> {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length >> 1 }, (_, i) => view.getInt16(2 * i, true) / 32768);
}

function encodePCM(samples: Float32Array): string {
  const view = new DataView(new ArrayBuffer(samples.length * 2));
  samples.forEach((sample, i) => view.setInt16(2 * i, Math.max(-1, Math.min(1, sample)) * 32767, true));
  let text = "";
  for (const byte of new Uint8Array(view.buffer)) text += String.fromCharCode(byte);
  return btoa(text);
}
