import { newError, PurserError } from "./errors.js";
import type { AccessTokens, Transport } from "./http.js";
import type { TokenResponse } from "./types.js";

/** The tokens of one connection, as a store keeps them. Both tokens are secret. */
export interface Tokens {
  connection_id: string;
  access_token: string;
  /** It works once: each refresh replaces it. */
  refresh_token: string;
  /** When the access token ends, RFC 3339 in UTC. */
  expires_at: string;
}

/** Where tokens are kept. Implement it with the app's database: see {@link MemoryTokenStore}, which is 20 lines. */
export interface TokenStore {
  /** load returns the tokens of a connection, or undefined if there are none. */
  load(connectionID: string): Promise<Tokens | undefined>;
  /** save replaces the tokens of a connection. It returns when they are durable. */
  save(connectionID: string, tokens: Tokens): Promise<void>;
  /** lock runs `work` while no other process runs work for the same connection, for example in a transaction with `SELECT … FOR UPDATE`. */
  lock<T>(connectionID: string, work: () => Promise<T>): Promise<T>;
}

/** Keeps tokens in the memory of this process, for tests and scripts. */
export class MemoryTokenStore implements TokenStore {
  #tokens = new Map<string, Tokens>();
  #last = new Map<string, Promise<unknown>>();

  async load(connectionID: string): Promise<Tokens | undefined> {
    return this.#tokens.get(connectionID);
  }

  async save(connectionID: string, tokens: Tokens): Promise<void> {
    this.#tokens.set(connectionID, tokens);
  }

  lock<T>(connectionID: string, work: () => Promise<T>): Promise<T> {
    const turn = (this.#last.get(connectionID) ?? Promise.resolve()).then(work, work);
    this.#last.set(connectionID, turn.catch(() => undefined));
    return turn;
  }
}

const lockMS = 20_000;

/**
 * Keeps the tokens of each connection in a file that only this user can read. Any number of processes on this machine
 * share a folder. For Node.js, Deno and Bun.
 *
 * Node.js has no lock of the operating system, so the lock is a file that names its owner and expires 20 s after it was
 * written. A process that dies leaves it until then. If two processes ever refresh at once, because the lock has expired
 * under a slow owner, both send the same idempotency key and get the same tokens.
 */
export class FileTokenStore implements TokenStore {
  #memory = new MemoryTokenStore(); // its lock orders the work of this process

  /** Keeps the files in `folder`, which is created if it is missing. */
  constructor(readonly folder: string) {}

  async load(connectionID: string): Promise<Tokens | undefined> {
    const { readFile } = await loadFS();
    const text = await readFile(this.#path(connectionID, "json"), "utf8").catch(ignoreMissing);
    return text === undefined ? undefined : JSON.parse(text) as Tokens;
  }

  async save(connectionID: string, tokens: Tokens): Promise<void> {
    const { mkdir, open, rename } = await loadFS();
    await mkdir(this.folder, { recursive: true, mode: 0o700 });
    const draft = this.#path(connectionID, `${crypto.randomUUID()}.new`);
    const file = await open(draft, "wx", 0o600);
    try {
      await file.writeFile(JSON.stringify(tokens));
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(draft, this.#path(connectionID, "json"));
  }

  lock<T>(connectionID: string, work: () => Promise<T>): Promise<T> {
    return this.#memory.lock(connectionID, async () => {
      const { mkdir, readFile, rm, stat, writeFile } = await loadFS();
      const path = this.#path(connectionID, "lock");
      const owner = crypto.randomUUID();
      await mkdir(this.folder, { recursive: true, mode: 0o700 });
      for (;;) {
        const isMine = await writeFile(path, owner, { flag: "wx", mode: 0o600 }).then(() => true, (error) => {
          if (error.code === "EEXIST") return false;
          throw error;
        });
        if (isMine) break;
        const held = await stat(path).catch(ignoreMissing);
        if (held && Date.now() - held.mtimeMs > lockMS) await rm(path, { force: true });
        else await new Promise((resolve) => setTimeout(resolve, 20 + Math.random() * 40));
      }
      try {
        return await work();
      } finally {
        if (await readFile(path, "utf8").catch(ignoreMissing) === owner) await rm(path, { force: true });
      }
    });
  }

  #path(connectionID: string, ending: string): string {
    if (!/^[\w-]+$/.test(connectionID)) throw newError("not_connected", `not a connection id: ${connectionID}`);
    return `${this.folder}/${connectionID}.${ending}`;
  }
}

// The name is no literal, so that bundlers for browsers do not look for the module.
const fsModule = "node:fs/promises";
const loadFS = (): Promise<typeof import("node:fs/promises")> => import(fsModule);

function ignoreMissing(error: { code?: string }): undefined {
  if (error.code !== "ENOENT") throw error;
}

/** saveTokens stores an answer of the token endpoint. */
export async function saveTokens(store: TokenStore, connectionID: string, t: TokenResponse): Promise<Tokens> {
  const tokens = {
    connection_id: connectionID,
    access_token: t.access_token,
    refresh_token: t.refresh_token,
    expires_at: new Date(Date.now() + t.expires_in * 1000).toISOString(),
  };
  await store.save(connectionID, tokens);
  return tokens;
}

/** A FixedToken is an access token that nothing refreshes. */
export class FixedToken implements AccessTokens {
  constructor(readonly token: string) {}

  async get(): Promise<string> {
    return this.token;
  }
}

const refreshEarlyMS = 60_000;

/** StoredTokens are the tokens of a connection in a store. It refreshes them. */
export class StoredTokens implements AccessTokens {
  constructor(readonly connectionID: string, readonly store: TokenStore, readonly transport: Transport) {}

  async get(rejected?: string): Promise<string> {
    const isFresh = (t: Tokens) =>
      t.access_token !== rejected && Date.parse(t.expires_at) - Date.now() > refreshEarlyMS;
    let tokens = await this.#load();
    if (isFresh(tokens)) return tokens.access_token;
    return this.store.lock(this.connectionID, async () => {
      tokens = await this.#load(); // another process may have refreshed them
      return isFresh(tokens) ? tokens.access_token : (await this.#refresh(tokens)).access_token;
    });
  }

  async #refresh(tokens: Tokens): Promise<Tokens> {
    try {
      const { data } = await this.transport.getJSON<TokenResponse>({
        method: "POST",
        path: "/oauth/token",
        auth: "client",
        form: { grant_type: "refresh_token", refresh_token: tokens.refresh_token },
        idempotencyKey: await deriveRefreshKey(tokens.refresh_token),
      });
      return await saveTokens(this.store, this.connectionID, data);
    } catch (error) {
      // A process that had the lock before it expired may have been faster.
      const now = error instanceof PurserError && error.code === "invalid_grant" ? await this.#load() : tokens;
      if (now.refresh_token !== tokens.refresh_token) return now;
      throw error;
    }
  }

  async #load(): Promise<Tokens> {
    const tokens = await this.store.load(this.connectionID);
    if (!tokens) throw newError("not_connected", `The store has no tokens of ${this.connectionID}.`);
    return tokens;
  }
}

// The key depends on the token alone: when a process dies before it has stored the answer, the next one repeats the
// same request within a minute and gets the same tokens. It is a UUID of version 8 (RFC 9562).
async function deriveRefreshKey(refreshToken: string): Promise<string> {
  const text = new TextEncoder().encode(`purser token\n${refreshToken}`);
  const b = new Uint8Array(await crypto.subtle.digest("SHA-256", text)).slice(0, 16);
  b[6] = (b[6]! & 0x0f) | 0x80;
  b[8] = (b[8]! & 0x3f) | 0x80;
  const hex = Array.from(b, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
