import { Connect, Device } from "./connect.js";
import { Connection } from "./connection.js";
import { Transport } from "./http.js";
import { Apps, Connections, Events, Features, Holds, Models, TestAccounts, Webhooks } from "./management.js";
import { MemoryTokenStore, type TokenStore } from "./tokens.js";

/** The settings of a {@link Purser}. */
export interface PurserOptions {
  /** Where the API answers, such as `https://purser.example.com`. */
  baseURL: string;
  /** The app's `client_id`. */
  clientID: string;
  /** The app's `client_secret`, on a server. A public client has none. */
  clientSecret?: string | undefined;
  /** Where users return after the consent screen; one of the registered URIs. */
  redirectURI?: string | undefined;
  /** Where tokens are kept; in this process's memory if it is missing. */
  tokens?: TokenStore;
  /** Replaces the runtime's fetch. */
  fetch?: typeof fetch;
  /** How often a failed request is repeated; default 2. */
  maxRetries?: number;
  /** The time limit of one try in milliseconds, of a stream until its headers; default 600,000. */
  timeoutMS?: number;
}

/** The client of an app. */
export class Purser {
  /** Connects users in a browser. */
  readonly connect = new Connect(this);
  /** Connects users of a device without a browser. */
  readonly device = new Device(this);
  /** The app itself. */
  readonly apps: Apps;
  /** What the app uses models for. */
  readonly features: Features;
  /** Webhook endpoints and their deliveries. */
  readonly webhooks: Webhooks;
  /** What has happened to the app's connections. */
  readonly events: Events;
  /** Test accounts of the sandbox. */
  readonly testAccounts: TestAccounts;
  /** All connections of the app. */
  readonly connections: Connections;
  /** Holds of the app's own work, also of connections that were revoked since. */
  readonly holds: Holds;
  /** The models that can be called. */
  readonly models: Models;
  /** The store of tokens. */
  readonly tokens: TokenStore;
  /** @internal */
  readonly transport: Transport;
  /** @internal */
  readonly options: { baseURL: string; clientID: string; redirectURI?: string | undefined };

  constructor(options: PurserOptions) {
    const baseURL = new URL(options.baseURL).href.replace(/\/+$/, "");
    this.options = { baseURL, clientID: options.clientID, redirectURI: options.redirectURI };
    this.tokens = options.tokens ?? new MemoryTokenStore();
    this.transport = new Transport({
      baseURL,
      clientID: options.clientID,
      clientSecret: options.clientSecret,
      fetch: options.fetch ?? ((...args) => fetch(...args)),
      maxRetries: options.maxRetries ?? 2,
      timeoutMS: options.timeoutMS ?? 600_000,
    });
    this.apps = new Apps(this.transport);
    this.features = new Features(this.transport);
    this.webhooks = new Webhooks(this.transport);
    this.events = new Events(this.transport);
    this.testAccounts = new TestAccounts(this.transport);
    this.connections = new Connections(this.transport);
    this.holds = new Holds(this.transport);
    this.models = new Models(this.transport);
  }

  /** connection returns a connection whose tokens are in the store. It sends nothing. */
  connection(connectionID: string): Connection {
    return new Connection(this, { id: connectionID });
  }

  /** withToken returns a connection with an access token that nothing refreshes, such as a child's. */
  withToken(accessToken: string): Connection {
    return new Connection(this, { token: accessToken });
  }
}
