import { newError, PurserError } from "./errors.js";
import { exchangeLimitMS, type AccessTokens, type Transport } from "./http.js";
import type { TokenResponse } from "./types.js";

/** The tokens of one connection, as a store keeps them. Both tokens are secret. */
export interface Tokens {
  connection_id: string;
  access_token: string;
  /** It works once: each refresh replaces it. */
  refresh_token: string;
  /** When the access token ends, RFC 3339 in UTC. */
  expires_at: string;
  /**
   * The idempotency key of a refresh that has begun. With it a process that goes on after a crash or a lost answer gets
   * the same new tokens.
   */
  refresh_key?: string;
}

/** Where tokens are kept. Implement it with the app's database: see {@link MemoryTokenStore}, which is 20 lines. */
export interface TokenStore {
  /** load returns the tokens of a connection, or undefined if there are none. */
  load(connectionID: string): Promise<Tokens | undefined>;
  /**
   * save replaces the tokens of a connection, with all their members. They are durable when it returns, or when the lock
   * is released. It is called before and after a refresh, each time under a lock of its own.
   */
  save(connectionID: string, tokens: Tokens): Promise<void>;
  /**
   * lock runs `work` while no other process runs work for the same connection, for example in a transaction with
   * `SELECT … FOR UPDATE`, which may be rolled back if `work` fails.
   */
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
    const { mkdir, open, rename, rm } = await loadFS();
    await mkdir(this.folder, { recursive: true, mode: 0o700 });
    const draft = this.#path(connectionID, `${crypto.randomUUID()}.new`);
    const file = await open(draft, "wx", 0o600);
    try {
      try {
        await file.writeFile(JSON.stringify(tokens));
        await file.sync();
      } finally {
        await file.close();
      }
      await rename(draft, this.#path(connectionID, "json"));
    } catch (error) {
      await rm(draft, { force: true });
      throw error;
    }
  }

  lock<T>(connectionID: string, work: () => Promise<T>): Promise<T> {
    return this.#memory.lock(connectionID, async () => {
      const { mkdir, readFile, rm, stat, writeFile } = await loadFS();
      const path = this.#path(connectionID, "owner"); // not the .lock of other SDKs, which stays there
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

/** readTokens reads an answer of the token endpoint. An answer without tokens replaces no stored ones. */
export function readTokens(connectionID: string | undefined, t: TokenResponse | null): Tokens {
  if (!connectionID || !t?.access_token || !t.refresh_token || !(t.expires_in > 0)) {
    throw newError("invalid_response", "The answer has no tokens.");
  }
  return {
    connection_id: connectionID,
    access_token: t.access_token,
    refresh_token: t.refresh_token,
    expires_at: new Date(Date.now() + t.expires_in * 1000).toISOString(),
  };
}

/** A FixedToken is an access token that nothing refreshes. */
export class FixedToken implements AccessTokens {
  constructor(readonly token: string) {}

  async get(): Promise<string> {
    return this.token;
  }
}

const refreshEarlyMS = 60_000;

/** New tokens that a store could not save, by connection, with the used refresh token that the store still has. */
const unsaved = new WeakMap<TokenStore, Map<string, { replaced: string; tokens: Tokens }>>();

/** StoredTokens are the tokens of a connection in a store. It refreshes them. */
export class StoredTokens implements AccessTokens {
  constructor(readonly connectionID: string, readonly store: TokenStore, readonly transport: Transport) {}

  async get(rejected?: string): Promise<string> {
    const isFresh = (t: Tokens) =>
      t.access_token !== rejected && Date.parse(t.expires_at) - Date.now() > refreshEarlyMS;
    const stored = await this.#load();
    if (isFresh(stored)) return stored.access_token;
    let begun: string | undefined; // the refresh token whose key is saved
    for (;;) {
      const token = await this.store.lock(this.connectionID, async () => {
        const tokens = await this.#loadNewest(); // another process may have refreshed them
        if (isFresh(tokens)) return tokens.access_token;
        const isOwn = tokens.refresh_token === begun;
        if (!tokens.refresh_key && !isOwn) {
          await this.#saveKey(tokens);
          begun = tokens.refresh_token;
          return undefined; // another step follows
        }
        const renewed = await this.#refresh(tokens);
        // The answer to another process's refresh may be old: then they are refreshed once more.
        return isOwn || isFresh(renewed) ? renewed.access_token : undefined;
      });
      if (token !== undefined) return token;
    }
  }

  // The key is saved before it is sent: a store that can't save it could not save the new tokens either. The lock may
  // be a transaction, which a crash rolls back, so the key is saved under a lock of its own.
  async #saveKey(tokens: Tokens): Promise<void> {
    await this.store.save(this.connectionID, { ...tokens, refresh_key: crypto.randomUUID() });
    this.#unsaved.delete(this.connectionID);
  }

  async #refresh(tokens: Tokens): Promise<Tokens> {
    const key = tokens.refresh_key ?? await deriveRefreshKey(tokens.refresh_token); // the store has dropped it
    let renewed: Tokens;
    try {
      const { data } = await this.transport.getJSON<TokenResponse>({
        method: "POST",
        path: "/oauth/token",
        auth: "client",
        form: { grant_type: "refresh_token", refresh_token: tokens.refresh_token },
        idempotencyKey: key,
        limitMS: exchangeLimitMS,
      });
      renewed = readTokens(this.connectionID, data);
    } catch (error) {
      // A process that had the lock before it expired may have been faster.
      const now = error instanceof PurserError && error.code === "invalid_grant" ? await this.#load() : tokens;
      if (now.refresh_token !== tokens.refresh_token) return now;
      throw error;
    }
    try {
      await this.store.save(this.connectionID, renewed);
    } catch {
      // The old token no longer works. The new one stays in memory, and is saved before it is used.
      this.#unsaved.set(this.connectionID, { replaced: tokens.refresh_token, tokens: renewed });
    }
    return renewed;
  }

  get #unsaved(): Map<string, { replaced: string; tokens: Tokens }> {
    let map = unsaved.get(this.store);
    if (!map) unsaved.set(this.store, map = new Map());
    return map;
  }

  // Newer tokens that the store could not save are saved again.
  async #loadNewest(): Promise<Tokens> {
    const stored = await this.#load();
    const kept = this.#unsaved.get(this.connectionID);
    if (kept?.replaced !== stored.refresh_token) { // there are none, or the user connected again
      this.#unsaved.delete(this.connectionID);
      return stored;
    }
    await this.store.save(this.connectionID, kept.tokens)
      .then(() => this.#unsaved.delete(this.connectionID), () => undefined);
    return kept.tokens;
  }

  async #load(): Promise<Tokens> {
    const tokens = await this.store.load(this.connectionID);
    if (!tokens) throw newError("not_connected", `The store has no tokens of ${this.connectionID}.`);
    return tokens;
  }
}

// The key for a store that does not keep refresh_key: a UUID of version 8 (RFC 9562). It follows from the token, so that
// processes which share the store have the same one.
async function deriveRefreshKey(refreshToken: string): Promise<string> {
  const text = new TextEncoder().encode(`purser token\n${refreshToken}`);
  const b = new Uint8Array(await crypto.subtle.digest("SHA-256", text)).slice(0, 16);
  b[6] = (b[6]! & 0x0f) | 0x80;
  b[8] = (b[8]! & 0x3f) | 0x80;
  const hex = Array.from(b, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
