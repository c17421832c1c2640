/** One server-sent event. */
export interface ServerEvent {
  event: string;
  data: string;
  id: string | undefined;
}

/** How long a stream may send nothing. The service sends a comment after 15 s. */
export const maxSilenceMS = 60_000;

/**
 * readEvents parses a stream of server-sent events (WHATWG HTML §9.2). When its reader stops, or the signal does, the
 * connection is closed. It fails after a minute without a byte.
 */
export async function* readEvents(
  body: ReadableStream<Uint8Array>, signal?: AbortSignal, silenceMS = maxSilenceMS,
): AsyncGenerator<ServerEvent, void, void> {
  const reader = body.getReader();
  let isSilent = false;
  const stop = () => void reader.cancel().catch(() => undefined); // a read that waits ends
  const watch = () => setTimeout(() => {
    isSilent = true;
    stop();
  }, silenceMS);
  signal?.addEventListener("abort", stop, { once: true });
  const decoder = new TextDecoder();
  let rest = "";
  let event = "message", id: string | undefined;
  let data: string[] = [];
  try {
    for (;;) {
      const timer = watch();
      const { done, value } = await reader.read().finally(() => clearTimeout(timer));
      if (isSilent) throw new Error(`the stream has sent nothing for ${silenceMS / 1000} s`);
      rest += decoder.decode(value, { stream: !done });
      // A carriage return at the end may be the first half of a line end.
      const lines = rest.split(done ? /\r\n|\n|\r/ : /\r\n|\n|\r(?!$)/);
      rest = lines.pop()!;
      for (const line of lines) {
        if (line === "") {
          if (data.length) yield { event, data: data.join("\n"), id };
          event = "message";
          id = undefined;
          data = [];
          continue;
        }
        const [, name, text] = /^([^:]*):? ?([^]*)$/.exec(line)!;
        if (name === "data") data.push(text!);
        else if (name === "event") event = text!;
        else if (name === "id") id = text!;
      }
      if (done) return;
    }
  } finally {
    signal?.removeEventListener("abort", stop);
    await reader.cancel().catch(() => undefined);
  }
}
