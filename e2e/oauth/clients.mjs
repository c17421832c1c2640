// Connects, refreshes, calls, manages and revokes by third-party OAuth clients as they are published. Nothing here
// changes how they authenticate.
import assert from "node:assert/strict";
import { Auth, skipCSRFCheck } from "@auth/core";
import * as oauth from "oauth4webapi";
import * as openid from "openid-client";
import { User } from "./user.mjs";

const given = JSON.parse(process.argv[2]);
const { baseURL, authURL, appID, clientID, clientSecret, redirectURI, publicID } = given;
const user = new User();
await user.signIn(authURL, given.email, given.password);
const asked = { requested_allocation_mc: "500000000", features: "chat" };
const isFresh = (tokens, old) => tokens.access_token && tokens.refresh_token && tokens.expires_in === 900 &&
  tokens.access_token !== old?.access_token && tokens.refresh_token !== old?.refresh_token;

// reasonOf reads why Purser refused a grant. RFC 6749 makes "error" a string and Purser an object, so the libraries
// report only that the response is unusual, and keep it.
async function reasonOf(e) {
  assert.equal(e.code, "OAUTH_RESPONSE_IS_NOT_CONFORM");
  const { error } = await e.cause.json();
  assert.equal(error.code, "invalid_grant");
  return error.details.reason;
}

const clients = {
  async "openid-client"() {
    const config = await openid.discovery(new URL(authURL), clientID, undefined, openid.ClientSecretBasic(clientSecret),
      { algorithm: "oauth2", execute: [openid.allowInsecureRequests] });
    const verifier = openid.randomPKCECodeVerifier(), state = openid.randomState();
    const url = openid.buildAuthorizationUrl(config, {
      ...asked, redirect_uri: redirectURI, state,
      code_challenge: await openid.calculatePKCECodeChallenge(verifier), code_challenge_method: "S256",
    });
    const checks = { pkceCodeVerifier: verifier, expectedState: state };
    const first = await openid.authorizationCodeGrant(config, await user.approve(url), checks);
    assert.ok(isFresh(first));
    assert.equal(first.allocation_mc, 500000000);
    const second = await openid.refreshTokenGrant(config, first.refresh_token);
    assert.ok(isFresh(second, first));
    const call = await openid.fetchProtectedResource(config, second.access_token, new URL(`${baseURL}/v1/connection`), "GET");
    assert.equal((await call.json()).allocation_mc, 500000000);
    const repeat = await openid.refreshTokenGrant(config, first.refresh_token).catch((e) => e);
    assert.equal(await reasonOf(repeat), "used");
    await openid.tokenRevocation(config, second.refresh_token);
    const ended = await openid.refreshTokenGrant(config, second.refresh_token).catch((e) => e);
    assert.equal(await reasonOf(ended), "used");
  },

  async "openid-client-device"() {
    const config = await openid.discovery(new URL(authURL), publicID, undefined, openid.None(),
      { algorithm: "oauth2", execute: [openid.allowInsecureRequests] });
    const device = await openid.initiateDeviceAuthorization(config, asked);
    const polled = openid.pollDeviceAuthorizationGrant(config, device);
    await user.answerDevice(device.verification_uri, device.user_code, { decision: "approve", test_account: "new", spend_cap: "5" });
    const first = await polled;
    assert.ok(isFresh(first));
    assert.equal(first.allocation_mc, 500000000);
    assert.ok(isFresh(await openid.refreshTokenGrant(config, first.refresh_token), first));

    const refused = await openid.initiateDeviceAuthorization(config, {});
    await user.answerDevice(refused.verification_uri, refused.user_code, { decision: "deny" });
    const denied = await openid.pollDeviceAuthorizationGrant(config, refused).catch((e) => e);
    assert.equal(denied.error, "access_denied");
    const again = await openid.genericGrantRequest(config, "urn:ietf:params:oauth:grant-type:device_code",
      { device_code: device.device_code }).catch((e) => e);
    assert.equal(again.error, "invalid_grant");
  },

  async oauth4webapi() {
    const options = { [oauth.allowInsecureRequests]: true };
    const issuer = new URL(authURL), client = { client_id: clientID }, basic = oauth.ClientSecretBasic(clientSecret);
    const server = await oauth.processDiscoveryResponse(issuer,
      await oauth.discoveryRequest(issuer, { ...options, algorithm: "oauth2" }));
    const verifier = oauth.generateRandomCodeVerifier(), state = oauth.generateRandomState();
    const url = new URL(server.authorization_endpoint);
    url.search = new URLSearchParams({
      ...asked, response_type: "code", client_id: clientID, redirect_uri: redirectURI, state,
      code_challenge: await oauth.calculatePKCECodeChallenge(verifier), code_challenge_method: "S256",
    });
    const back = oauth.validateAuthResponse(server, client, await user.approve(url), state);
    const first = await oauth.processAuthorizationCodeResponse(server, client,
      await oauth.authorizationCodeGrantRequest(server, client, basic, back, redirectURI, verifier, options));
    assert.ok(isFresh(first));
    const second = await oauth.processRefreshTokenResponse(server, client,
      await oauth.refreshTokenGrantRequest(server, client, basic, first.refresh_token, options));
    assert.ok(isFresh(second, first));

    // The management API takes the credentials as the library encodes them.
    const headers = new Headers();
    await basic(server, client, new URLSearchParams(), headers);
    assert.match(atob(headers.get("authorization").slice("Basic ".length)), /^cid%5F/);
    const manage = async (method, path) => {
      const response = await fetch(baseURL + path, { method, headers });
      assert.equal(response.status, 200, await response.clone().text());
      return response.json();
    };
    assert.equal((await manage("GET", `/v1/apps/${appID}`)).client_id, clientID);
    assert.equal((await manage("GET", `/v1/connections/${first.connection_id}`)).status, "active");
    await manage("POST", `/v1/connections/${first.connection_id}/revoke`);
    const ended = await oauth.processRefreshTokenResponse(server, client,
      await oauth.refreshTokenGrantRequest(server, client, basic, second.refresh_token, options)).catch((e) => e);
    assert.equal(await reasonOf(ended), "connection_revoked");
  },

  async "@auth/core"() {
    const origin = new URL(redirectURI).origin, cookies = new Map();
    const config = {
      basePath: "/auth", secret: "a secret of this test", trustHost: true, skipCSRFCheck,
      providers: [{
        id: "purser", name: "Purser", type: "oauth", issuer: authURL, clientId: clientID, clientSecret,
        checks: ["pkce", "state"],
        authorization: { url: `${authURL}/oauth/authorize`, params: asked },
        token: `${baseURL}/oauth/token`,
        userinfo: {
          async request({ tokens }) {
            const headers = { authorization: `Bearer ${tokens.access_token}` };
            return (await fetch(`${baseURL}/v1/connection`, { headers })).json();
          },
        },
        profile: (connection) => ({ name: connection.id }),
      }],
      callbacks: {
        jwt: ({ token, account }) => account ? { ...token, refresh_token: account.refresh_token } : token,
        session: ({ session, token }) => ({ ...session, refresh_token: token.refresh_token }),
      },
    };
    const visit = async (url, method = "GET") => {
      const headers = { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join("; ") };
      const response = await Auth(new Request(url, { method, headers, body: method === "POST" ? new URLSearchParams() : undefined }), config);
      for (const cookie of response.headers.getSetCookie()) {
        const [, name, value] = /^([^=]+)=([^;]*)/.exec(cookie);
        cookies.set(name, value);
      }
      return response;
    };
    const start = await visit(`${origin}/auth/signin/purser`, "POST");
    assert.equal(start.status, 302);
    const back = await visit(await user.approve(start.headers.get("location")));
    assert.equal(back.headers.get("location"), origin, await back.text());
    const session = await (await visit(`${origin}/auth/session`)).json();
    assert.match(session.user.name, /^conn_/);
    assert.ok(session.refresh_token);
  },
};

for (const [name, connect] of Object.entries(clients)) {
  await connect();
  console.log(name);
}
