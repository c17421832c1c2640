// Forms about a spend cap: the button says the chosen amount, and a typed amount what it leaves. Without this script the
// button says "Allow", and the server checks every amount anyway.
"use strict";
(() => {
  const dollars = (cents) => {
    const whole = Math.floor(cents / 100).toString().replace(/\B(?=(\d{3})+$)/g, ",");
    return "$" + whole + "." + String(cents % 100).padStart(2, "0");
  };
  // Cents of a typed amount; NaN = not an amount in whole cents of less than a billion dollars.
  const cents = (text) => {
    const m = /^\s*\$?(\d{1,9})(?:\.(\d{0,2}))?\s*$/.exec(text);
    return m ? Number(m[1]) * 100 + Number((m[2] || "").padEnd(2, "0")) : NaN;
  };
  for (const form of document.querySelectorAll("form[data-cap]")) {
    const label = form.querySelector("[data-allow]");
    const field = form.elements.spend_cap;
    const other = form.querySelector("[data-other]");
    const free = Number(form.dataset.cap);
    const plain = label.textContent;
    const show = () => {
      const chosen = form.querySelector("input[name=amount]:checked");
      const own = !chosen || chosen.value === "other";
      const amount = cents(own ? field.value : chosen.value);
      label.textContent = amount > 0 ? label.dataset.allow + " " + dollars(amount) : plain;
      if (other) other.textContent = own && amount > 0 && free > amount ? dollars(free - amount) + " stays free." : "";
    };
    form.addEventListener("input", show);
    form.addEventListener("change", show);
    show();
  }
})();
