// Checks the proof of a ledger entry in the browser: hashes by WebCrypto, nothing is asked of the server but the file.
"use strict";
(() => {
  const list = document.querySelector("[data-proof]");
  const button = document.querySelector("[data-prove]");
  const result = document.querySelector("[data-result]");
  if (!list) return;
  const utf8 = new TextEncoder();
  const bytes = (base64) => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const join = (...parts) => {
    const all = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
    let at = 0;
    for (const p of parts) { all.set(p, at); at += p.length; }
    return all;
  };
  const sha256 = async (data) => new Uint8Array(await crypto.subtle.digest("SHA-256", data));
  const equal = (a, b) => a.length === b.length && a.every((v, i) => v === b[i]);
  const base64url = (data) => btoa(String.fromCharCode(...data)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "");

  // The text that is hashed: the earlier hash, then each column with its length.
  const rowHash = async (receipt) => {
    const columns = receipt.row.columns.map(([, value]) => {
      if (value === null) return "n";
      if (typeof value === "number") return "i:" + value;
      return utf8.encode(value).length + ":" + value;
    });
    return base64url(await sha256(utf8.encode(receipt.previous_hash + "\n" + columns.join("|"))));
  };

  // The inclusion proof of RFC 9162, section 2.1.3.2.
  const root = async (proof, size) => {
    let fn = proof.position;
    let sn = size - 1;
    let hash = await sha256(join([0], bytes(proof.entry)));
    const half = (n) => Math.floor(n / 2);
    for (const sibling of (proof.hashes || []).map(bytes)) {
      if (sn === 0) return null;
      if (fn % 2 === 1 || fn === sn) {
        hash = await sha256(join([1], sibling, hash));
        while (fn % 2 === 0 && fn !== 0) { fn = half(fn); sn = half(sn); }
      } else {
        hash = await sha256(join([1], hash, sibling));
      }
      fn = half(fn);
      sn = half(sn);
    }
    return sn === 0 ? hash : null;
  };

  const isSigned = async (text, signatures, key) => {
    const [name, , encoded] = key.split(/\+(.{8})\+/);
    const raw = bytes(encoded);
    if (raw[0] !== 1 || text.split("\n")[0] !== name) return false;
    const imported = await crypto.subtle.importKey("raw", raw.slice(1), { name: "Ed25519" }, false, ["verify"]);
    for (const line of signatures.split("\n")) {
      const m = /^— (\S+) (\S+)$/.exec(line);
      if (m && m[1] === name && await crypto.subtle.verify("Ed25519", imported, bytes(m[2]).slice(4), utf8.encode(text))) return true;
    }
    return false;
  };

  // Each check by its name; the first that fails ends them.
  const checks = {
    row: async (r) => await rowHash(r) === r.row.hash,
    leaf: async (r) => equal(bytes(r.proof.entry).slice(16),
      await sha256(join(utf8.encode("purser log row\n"), bytes(r.blind), utf8.encode(r.row.hash)))),
    tree: async (r) => {
      const [, size, hash] = r.proof.checkpoint.split("\n");
      const found = r.proof.position < Number(size) && await root(r.proof, Number(size));
      return Boolean(found) && equal(found, bytes(hash));
    },
    signature: async (r) => {
      const end = r.proof.checkpoint.indexOf("\n\n");
      return isSigned(r.proof.checkpoint.slice(0, end + 1), r.proof.checkpoint.slice(end + 2), r.proof.key);
    },
  };

  button.addEventListener("click", async () => {
    button.disabled = true;
    result.textContent = "Checking…";
    for (const mark of list.querySelectorAll("strong")) mark.textContent = "";
    let failed = "";
    try {
      if (!crypto.subtle) throw new Error("it does that on pages over HTTPS only");
      const response = await fetch(list.dataset.proof, { cache: "no-store" });
      if (!response.ok) throw new Error("the proof could not be loaded");
      const receipt = await response.json();
      for (const item of list.querySelectorAll("[data-check]")) {
        const ok = await checks[item.dataset.check](receipt);
        item.querySelector("strong").textContent = ok ? "✓ Correct" : "✗ Wrong";
        if (!ok) { failed = "This proof is wrong. Download it and contact support."; break; }
      }
    } catch (error) {
      failed = "Your browser couldn’t check the proof: " + error.message + ".";
    }
    result.textContent = failed || "Proved. This entry is in the signed log, unchanged.";
    button.disabled = false;
  });
})();
