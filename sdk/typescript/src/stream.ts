import { newError, parseError, PurserError } from "./errors.js";
import { describe, wait } from "./http.js";
import { readEvents } from "./sse.js";
import type { CompletionChunk, StreamBill } from "./types.js";

/** A piece of a streamed answer. */
export interface StreamChunk {
  /** The text of this piece; "" if it has none. */
  text: string;
  /** The chunk as the provider sent it, with tool calls and the reason of the end. */
  raw: CompletionChunk;
}

/**
 * A streamed answer. Iterate over it once; to leave the loop cancels the call, and what was delivered is charged.
 *
 * ```ts
 * for await (const chunk of stream) process.stdout.write(chunk.text);
 * console.log(await stream.bill());
 * ```
 */
export class CallStream implements AsyncIterable<StreamChunk> {
  readonly #open: () => Promise<Response>;
  readonly #maxRetries: number;
  readonly #signal: AbortSignal | undefined;
  #chunks: AsyncGenerator<StreamChunk, void, void> | undefined;
  #bill: StreamBill | null = null;
  #failure: unknown;
  #requestID: string | null = null;

  /** @internal */
  constructor(open: () => Promise<Response>, maxRetries: number, signal?: AbortSignal) {
    this.#open = open;
    this.#maxRetries = maxRetries;
    this.#signal = signal;
  }

  /** The id of the call, for its receipt; null until the answer has begun. */
  get requestID(): string | null {
    return this.#requestID;
  }

  [Symbol.asyncIterator](): AsyncGenerator<StreamChunk, void, void> {
    return this.#chunks ??= this.#read();
  }

  /** text reads the whole stream, and returns its text. */
  async text(): Promise<string> {
    let text = "";
    for await (const chunk of this) text += chunk.text;
    return text;
  }

  /**
   * bill reads what is left of the stream, and returns the exact charge. It is null if the stream was left early: then
   * `connection.receipts.get(stream.requestID)` has the charge. Its `settlement` is `pending` if the charge follows by
   * the event `request.settled`.
   */
  async bill(): Promise<StreamBill | null> {
    try {
      for await (const _ of this) { /* the loop settles the bill */ }
    } catch (error) {
      this.#failure = error;
    }
    if (this.#failure && !this.#bill) throw this.#failure;
    return this.#bill;
  }

  async *#read(): AsyncGenerator<StreamChunk, void, void> {
    try {
      for (let tries = 0; ; tries++) {
        let started = false;
        try {
          for await (const chunk of this.#readOnce()) {
            started = true;
            yield chunk;
          }
          return;
        } catch (error) {
          // The same key returns what the first try has begun, and is not billed a second time.
          const broken = error instanceof PurserError && error.code === "stream_broken";
          if (!broken || started || tries >= this.#maxRetries) throw error;
          await wait(0.5 * 2 ** tries, this.#signal);
        }
      }
    } catch (error) {
      this.#failure = error;
      throw error;
    }
  }

  async *#readOnce(): AsyncGenerator<StreamChunk, void, void> {
    const response = await this.#open();
    this.#requestID = response.headers.get("x-request-id");
    let failure: PurserError | undefined;
    try {
      for await (const { data } of readEvents(response.body!, this.#signal)) {
        if (data === "[DONE]") {
          if (failure) throw failure;
          return;
        }
        const value = JSON.parse(data);
        if (value.error) {
          failure = parseError({ status: response.status, headers: response.headers, body: value, clientCredentials: false });
        }
        if (value.svc_final) {
          const { svc, ...rest } = value.svc_final;
          this.#bill = { ...svc, ...rest };
        }
        if (value.choices) yield { text: value.choices[0]?.delta?.content ?? "", raw: value };
      }
    } catch (error) {
      this.#signal?.throwIfAborted();
      if (error instanceof PurserError) throw error;
      throw failure ?? newError("stream_broken", `The connection broke before the stream ended: ${describe(error)}`, error);
    }
    this.#signal?.throwIfAborted();
    throw failure ?? newError("stream_broken", "The stream ended before it was complete.");
  }
}
