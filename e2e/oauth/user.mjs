// The user of the tests: a browser without scripts, that signs in and approves.
import assert from "node:assert/strict";

export class User {
  #cookies = new Map();

  // request sends a GET, or a POST with a form, and follows no redirect.
  async request(url, form) {
    const response = await fetch(url, {
      method: form ? "POST" : "GET",
      body: form && new URLSearchParams(form),
      redirect: "manual",
      headers: { cookie: [...this.#cookies].map(([name, value]) => `${name}=${value}`).join("; ") },
    });
    for (const cookie of response.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(cookie);
      this.#cookies.set(name, value);
    }
    return response;
  }

  async signIn(authURL, email, password) {
    assert.equal((await this.request(`${authURL}/sign-in`, { email, password })).status, 303);
  }

  // answerDevice types a device's code, and answers the consent screen that it leads to.
  async answerDevice(page, code, answer) {
    const consent = await this.request(page, { user_code: code });
    assert.match(await consent.text(), new RegExp(code));
    const response = await this.request(page, { user_code: code, daily_limit: "", ...answer });
    assert.equal(response.status, 200, await response.text());
  }

  // approve answers the consent screen and returns the address that leads back to the app.
  async approve(url) {
    const form = { decision: "approve", test_account: "new", spend_cap: "5", daily_limit: "" };
    const response = await this.request(url, form);
    assert.equal(response.status, 302, await response.text());
    return new URL(response.headers.get("location"));
  }
}
