// What else can be clicked, and the beginning.

function showCosts() {
  const buttons = [...document.querySelectorAll("[data-metric]")];
  const bars = [...document.querySelectorAll("[data-widths]")];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      press(buttons, button);
      byId("cost-key").hidden = button.dataset.metric !== "bytes";
      for (const bar of bars) {
        const [first, second = 0] = JSON.parse(bar.dataset.widths)[button.dataset.metric];
        const [one, other] = bar.children;
        one.setAttribute("width", `${first}%`);
        other.setAttribute("x", `${first}%`);
        other.setAttribute("width", `${second}%`);
      }
    });
  }
}

function showCopies() {
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const text = byId(button.dataset.copy);
      let done = false;
      try {
        await navigator.clipboard.writeText(text.textContent);
        done = true;
      } catch {
        // Where a file may not write to the clipboard, the text is at least selected.
        getSelection().selectAllChildren(text);
        done = document.execCommand("copy");
      }
      button.textContent = done ? "Copied" : "Selected";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }
}

/** The link to the section that is being read. */
function showPlace() {
  const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.getAttribute("href").slice(1), a]));
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(entry.target.id).setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  for (const section of document.querySelectorAll("main > section")) watch.observe(section);
}

addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details")) part.open = true;
});
showPicture();
showCurves();
showCosts();
showWeights();
showCopies();
showPlace();
