// Light or dark as Airflow has it: the class of the page around this one, else what Airflow keeps in the browser's
// storage for this origin, else what the system prefers. A classic script, so that nothing is painted in the wrong one.
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");

  function around() {
    try {
      if (parent === self) return null;
      const { classList } = parent.document.documentElement;
      return classList.contains("dark") ? "dark" : classList.contains("light") ? "light" : null;
    } catch {
      return null; // framed by another origin
    }
  }

  function kept() {
    try {
      const theme = localStorage.getItem("theme");
      return theme === "dark" || theme === "light" ? theme : null;
    } catch {
      return null; // storage is switched off
    }
  }

  function follow() {
    document.documentElement.dataset.theme = around() ?? kept() ?? (system.matches ? "dark" : "light");
  }

  follow();
  system.addEventListener("change", follow);
  addEventListener("storage", follow);
  if (parent !== self && around() !== null) {
    new MutationObserver(follow).observe(parent.document.documentElement, { attributeFilter: ["class"] });
  }
})();
