import { randomBytes, scrypt, timingSafeEqual } from "node:crypto";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { rename, writeFile } from "node:fs/promises";
import { promisify } from "node:util";
import type { ConnectAttempt } from "@purser/sdk";

const hash = promisify(scrypt) as (password: string, salt: string, length: number) => Promise<Buffer>;

interface Account {
  salt: string;
  password: string; // scrypt
  connectionID?: string | undefined;
}

/** The accounts of this app, by name, in a file. They are not accounts of Purser. */
export class Accounts {
  readonly #file: string;
  readonly #all: Map<string, Account>;
  #saved: Promise<void> = Promise.resolve();

  constructor(folder: string) {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    this.#file = `${folder}/users.json`;
    this.#all = new Map(existsSync(this.#file) ? JSON.parse(readFileSync(this.#file, "utf8")) : []);
  }

  /** create makes an account. It returns why it cannot. */
  async create(name: string, password: string): Promise<string | undefined> {
    if (!name || password.length < 8) return "A name, and a password of 8 characters or more, please.";
    const salt = randomBytes(16).toString("hex");
    const hashed = (await hash(password, salt, 32)).toString("hex");
    if (this.#all.has(name)) return "This name is taken.";
    this.#all.set(name, { salt, password: hashed });
    await this.#save();
    return undefined;
  }

  /** check returns why someone may not sign in. An unknown name takes as long as a wrong password. */
  async check(name: string, password: string): Promise<string | undefined> {
    const account = this.#all.get(name);
    const given = await hash(password, account?.salt ?? "", 32);
    const ok = account !== undefined && timingSafeEqual(given, Buffer.from(account.password, "hex"));
    return ok ? undefined : "Incorrect name or password.";
  }

  connectionOf(name: string | undefined): string | undefined {
    return name === undefined ? undefined : this.#all.get(name)?.connectionID;
  }

  async setConnection(name: string, connectionID: string | undefined): Promise<void> {
    const account = this.#all.get(name);
    if (account) account.connectionID = connectionID;
    await this.#save();
  }

  #save(): Promise<void> {
    return this.#saved = this.#saved.then(async () => {
      await writeFile(`${this.#file}.new`, JSON.stringify([...this.#all]), { mode: 0o600 });
      await rename(`${this.#file}.new`, this.#file);
    });
  }
}

/** A message of a conversation. */
export interface Message {
  role: "user" | "assistant";
  content: string;
}

/** Tells the user something, with a link that helps. */
export interface Notice {
  text: string;
  url?: string | undefined;
  link?: string;
}

/** One browser. It lives as long as the process. */
export class Session {
  messages: Message[] = [];
  bill = "";
  attempt: ConnectAttempt | undefined;
  notice: Notice | undefined;

  constructor(readonly user: string | undefined) {}

  takeNotice(): Notice | undefined {
    const { notice } = this;
    this.notice = undefined;
    return notice;
  }
}

/** All sessions, by the value of their cookie. */
export class Sessions {
  readonly #all = new Map<string, Session>();

  find(cookies = ""): Session {
    const id = /(?:^|; *)session=([0-9a-f]+)/.exec(cookies)?.[1];
    return this.#all.get(id ?? "") ?? new Session(undefined);
  }

  /** begin returns the cookie of a new session. Behind HTTPS add Secure. */
  begin(user: string): string {
    const id = randomBytes(32).toString("hex");
    this.#all.set(id, new Session(user));
    return `session=${id}; Path=/; HttpOnly; SameSite=Lax; Max-Age=2592000`;
  }

  end(session: Session): void {
    for (const [id, one] of this.#all) if (one === session) this.#all.delete(id);
  }
}
