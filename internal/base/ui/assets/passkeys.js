// Browsers make and use passkeys for a script alone, and this is all it does: it
// shows what pages offer where they work, and asks the browser what a form says.
"use strict";
(() => {
  const party = document.currentScript.dataset.party, host = location.hostname;
  const named = host === party || host.endsWith("." + party);
  const state = !named ? "elsewhere" : window.PublicKeyCredential ? "here" : "never";
  for (const e of document.querySelectorAll("[data-passkeys]")) e.hidden = e.dataset.passkeys !== state;

  const form = document.querySelector("form[data-ceremony]");
  if (!form || state !== "here") return;

  // Binary values travel as base64url.
  const bytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
  const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

  const publicKey = JSON.parse(form.dataset.options);
  publicKey.challenge = bytes(publicKey.challenge);
  if (publicKey.user) publicKey.user.id = bytes(publicKey.user.id);
  for (const key of [...(publicKey.allowCredentials ?? []), ...(publicKey.excludeCredentials ?? [])]) key.id = bytes(key.id);

  const answer = (made) => {
    const response = { clientDataJSON: text(made.response.clientDataJSON) };
    for (const name of ["attestationObject", "authenticatorData", "signature", "userHandle"]) {
      if (made.response[name]) response[name] = text(made.response[name]);
    }
    if (made.response.getTransports) response.transports = made.response.getTransports();
    return JSON.stringify({ id: made.id, rawId: text(made.rawId), type: made.type, response, clientExtensionResults: made.getClientExtensionResults() });
  };

  const words = {
    InvalidStateError: "This device already has a passkey for your account.",
    NotSupportedError: "This device can't create a passkey with a fingerprint, face or PIN.",
    SecurityError: "Passkeys don't work at this address.",
  };
  const button = form.querySelector("button"), problem = form.querySelector("[role=alert]");
  const ask = async () => {
    button.disabled = true;
    problem.hidden = true;
    try {
      const made = await (form.dataset.ceremony === "create" ? navigator.credentials.create({ publicKey }) : navigator.credentials.get({ publicKey }));
      form.elements.answer.value = answer(made);
      form.submit();
    } catch (e) {
      problem.textContent = words[e.name] ?? "No passkey was used. The request was cancelled or timed out, or this device has no passkey for this service.";
      problem.hidden = false;
      button.disabled = false;
    }
  };
  form.addEventListener("submit", (e) => { e.preventDefault(); ask(); });
  if (form.dataset.ceremony === "get") ask();
})();
