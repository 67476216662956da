// Before the first paint: the theme chosen last time.
"use strict";
try {
  const chosen = localStorage.getItem("kai-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* storage may be forbidden */ }
