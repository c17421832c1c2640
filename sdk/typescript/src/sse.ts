/** One server-sent event. */
export interface ServerEvent {
  event: string;
  data: string;
  id: string | undefined;
}

/**
 * readEvents parses a stream of server-sent events (WHATWG HTML §9.2). When its reader stops, or the signal does, the
 * connection is closed.
 */
export async function* readEvents(
  body: ReadableStream<Uint8Array>, signal?: AbortSignal,
): AsyncGenerator<ServerEvent, void, void> {
  const reader = body.getReader();
  const stop = () => void reader.cancel().catch(() => undefined); // a read that waits ends
  signal?.addEventListener("abort", stop, { once: true });
  const decoder = new TextDecoder();
  let rest = "";
  let event = "message", id: string | undefined;
  let data: string[] = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
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
