import { describeCapture, describeRelease, type RequestOptions, type Transport } from "./http.js";
import type {
  App, AppChanges, ConnectionState, Delivery, Event, EventType, Feature, FeatureChanges, Hold, Model, NewFeature,
  NewTestAccount, NewWebhook, Revocation, TestAccount, Webhook, WebhookChanges, WebhookWithSecret,
} from "./types.js";

/** The options of a list. */
export interface ListOptions {
  /** How many items a page has, 1 to 100. */
  pageSize?: number;
}

/** The options of a list of deliveries. */
export interface DeliveryListOptions extends ListOptions {
  status?: Delivery["status"];
  type?: EventType;
  /** Queued from then on. */
  since?: Date;
}

/** How many deliveries were queued again; `has_more`: recover again. */
export interface Recovered {
  queued: number;
  has_more: boolean;
}

// Every path of the management API is below /v1, and takes the app's credentials.
class Resource {
  /** @internal */
  constructor(protected readonly transport: Transport) {}

  protected async send<T>(method: string, path: string, body?: unknown): Promise<T> {
    return (await this.transport.getJSON<T>({ method, path: `/v1${path}`, auth: "client", body })).data;
  }

  protected pages<T>(path: string, query: RequestOptions["query"]): AsyncGenerator<T, void, void> {
    return this.transport.pages({ method: "GET", path: `/v1${path}`, auth: "client", query });
  }
}

const id = encodeURIComponent;

/** page returns the query of a list. */
export const page = (options: ListOptions) => ({ limit: options.pageSize ?? 100 });

/** The app. */
export class Apps extends Resource {
  /** get returns the app. */
  get(appID: string): Promise<App> {
    return this.send("GET", `/apps/${id(appID)}`);
  }

  /** update changes the members that are given; null clears one. */
  update(appID: string, changes: AppChanges): Promise<App> {
    return this.send("PATCH", `/apps/${id(appID)}`, changes);
  }
}

/** Features. */
export class Features extends Resource {
  /** list yields the features, newest first. */
  list(appID: string, options: ListOptions = {}): AsyncGenerator<Feature, void, void> {
    return this.pages(`/apps/${id(appID)}/features`, page(options));
  }

  /** create registers a feature. */
  create(appID: string, feature: NewFeature): Promise<Feature> {
    return this.send("POST", `/apps/${id(appID)}/features`, feature);
  }

  /** update changes the members that are given; null clears one. */
  update(appID: string, slug: string, changes: FeatureChanges): Promise<Feature> {
    return this.send("PATCH", `/apps/${id(appID)}/features/${id(slug)}`, changes);
  }
}

/** Webhook endpoints. */
export class Webhooks extends Resource {
  /** list yields the endpoints, newest first, without their secrets. */
  list(appID: string, options: ListOptions = {}): AsyncGenerator<Webhook, void, void> {
    return this.pages(`/apps/${id(appID)}/webhooks`, page(options));
  }

  /** create adds an endpoint. Store its `secret`: it is shown only now. */
  create(appID: string, webhook: NewWebhook): Promise<WebhookWithSecret> {
    return this.send("POST", `/apps/${id(appID)}/webhooks`, webhook);
  }

  /** get returns an endpoint. */
  get(appID: string, webhookID: string): Promise<Webhook> {
    return this.send("GET", `/apps/${id(appID)}/webhooks/${id(webhookID)}`);
  }

  /** update changes an endpoint. */
  update(appID: string, webhookID: string, changes: WebhookChanges): Promise<Webhook> {
    return this.send("PATCH", `/apps/${id(appID)}/webhooks/${id(webhookID)}`, changes);
  }

  /** delete deletes an endpoint with what waits for it. */
  delete(appID: string, webhookID: string): Promise<{ ok: true }> {
    return this.send("DELETE", `/apps/${id(appID)}/webhooks/${id(webhookID)}`);
  }

  /** rotateSecret returns the endpoint with a new secret. The old one stops working immediately. */
  rotateSecret(appID: string, webhookID: string): Promise<WebhookWithSecret> {
    return this.send("POST", `/apps/${id(appID)}/webhooks/${id(webhookID)}/rotate-secret`);
  }

  /** test sends a sample event to one endpoint. */
  test(appID: string, webhookID: string, type: EventType): Promise<Delivery> {
    return this.send("POST", `/apps/${id(appID)}/webhooks/${id(webhookID)}/test`, { type });
  }

  /** deliveries yields the latest 50 deliveries, newest first. */
  deliveries(appID: string, webhookID: string): AsyncGenerator<Delivery, void, void> {
    return this.pages(`/apps/${id(appID)}/webhooks/${id(webhookID)}/deliveries`, {});
  }

  /** listDeliveries yields the deliveries that are kept and that the options choose, newest first. */
  listDeliveries(appID: string, webhookID: string, options: DeliveryListOptions = {}): AsyncGenerator<Delivery, void, void> {
    const query = { ...page(options), status: options.status, type: options.type, since: options.since?.toISOString() };
    return this.pages(`/apps/${id(appID)}/webhooks/${id(webhookID)}/deliveries`, query);
  }

  /** recover sends again what has failed or waits for a retry since a time, up to 1,000 events. */
  recover(appID: string, webhookID: string, since: Date): Promise<Recovered> {
    return this.send("POST", `/apps/${id(appID)}/webhooks/${id(webhookID)}/recover`, { since: since.toISOString() });
  }

  /** redeliver sends an event again. */
  redeliver(appID: string, webhookID: string, deliveryID: string): Promise<Delivery> {
    return this.send("POST", `/apps/${id(appID)}/webhooks/${id(webhookID)}/deliveries/${id(deliveryID)}/redeliver`);
  }
}

/** Events of the app. */
export class Events extends Resource {
  /**
   * list yields the events after one, oldest first; without `after` the latest page, newest first. An error with status
   * 400 says that events may be missed, such as after a restore of the service: read the connections again, and go on
   * with the latest event.
   */
  async *list(appID: string, options: ListOptions & { after?: string } = {}): AsyncGenerator<Event, void, void> {
    const path = `/apps/${id(appID)}/events`;
    if (options.after !== undefined) {
      yield* this.pages<Event>(path, { ...page(options), after: options.after });
      return;
    }
    // The page after the latest events has those to come.
    const query = page(options);
    yield* (await this.transport.getJSON<Event[]>({ method: "GET", path: `/v1${path}`, auth: "client", query })).data;
  }

  /** trigger sends a sample event to all endpoints. */
  trigger(appID: string, type: EventType): Promise<Event> {
    return this.send("POST", `/apps/${id(appID)}/events`, { type });
  }
}

/** Test accounts. Their money is fake. */
export class TestAccounts extends Resource {
  /** list yields the test accounts, oldest first. */
  list(appID: string): AsyncGenerator<TestAccount, void, void> {
    return this.pages(`/apps/${id(appID)}/test-accounts`, {});
  }

  /** create makes a test account. Its password is shown only now. */
  create(appID: string): Promise<NewTestAccount> {
    return this.send("POST", `/apps/${id(appID)}/test-accounts`);
  }

  /** fund adds to the balance, in micro-cents. */
  fund(appID: string, accountID: string, amountMC: number): Promise<TestAccount> {
    return this.send("POST", `/apps/${id(appID)}/test-accounts/${id(accountID)}/fund`, { amount_mc: amountMC });
  }

  /** delete ends the account and its connections. */
  async delete(appID: string, accountID: string): Promise<void> {
    await this.send("DELETE", `/apps/${id(appID)}/test-accounts/${id(accountID)}`);
  }
}

/** All connections of the app, seen with its credentials. */
export class Connections extends Resource {
  /** list yields the connections, newest first, revoked ones included. */
  list(options: ListOptions = {}): AsyncGenerator<ConnectionState, void, void> {
    return this.pages("/connections", page(options));
  }

  /** get returns a connection with its newest ledger entries. */
  get(connectionID: string): Promise<ConnectionState> {
    return this.send("GET", `/connections/${id(connectionID)}`);
  }

  /** revoke ends a connection. This can't be undone. */
  revoke(connectionID: string): Promise<Revocation> {
    return this.send("POST", `/connections/${id(connectionID)}/revoke`);
  }
}

/**
 * Holds of the app's own work, seen with its credentials: what was held before a user revoked the connection can still
 * be captured.
 */
export class Holds extends Resource {
  /** get returns a hold as it is now. */
  get(holdID: string): Promise<Hold> {
    return this.send("GET", `/holds/${id(holdID)}`);
  }

  /** capture charges what the work came to, at most what is held, and gives the rest back. Without an amount it is all of it. */
  async capture(holdID: string, options: { amountMC?: number | undefined } = {}): Promise<Hold> {
    return (await this.transport.getJSON<Hold>({ ...describeCapture(holdID, options.amountMC), auth: "client" })).data;
  }

  /** release gives all of a hold back, and charges nothing. */
  async release(holdID: string): Promise<Hold> {
    return (await this.transport.getJSON<Hold>({ ...describeRelease(holdID), auth: "client" })).data;
  }
}

/** The offered models. */
export class Models extends Resource {
  /** list yields the models that can be called now. It needs no credentials. */
  async *list(): AsyncGenerator<Model, void, void> {
    yield* (await this.transport.getJSON<Model[]>({ method: "GET", path: "/v1/models", auth: "none" })).data;
  }
}
