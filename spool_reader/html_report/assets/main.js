// The start: unpack the calls, draw what is in sight, then the charts.

function openNamed(button) {
  const place = button.dataset;
  openDetail(findCall(place.session, Number(place.rank), Number(place.step), Number(place.seq)), button);
}

function startPage() {
  for (const button of document.querySelectorAll("header button.call")) button.addEventListener("click", () => openNamed(button));
  for (const button of document.querySelectorAll("button.operator")) {
    button.addEventListener("click", () => {
      const operator = calls.operators.indexOf(button.dataset.operator);
      filterFields({ operator, text: "", rank: "", step: "" });
      chooseOperator(operator);
      $("h-calls").scrollIntoView();
    });
  }
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "Escape" && !$("detail").hidden) closeDetail();
    else if (event.key === "/" && !typing) {
      event.preventDefault();
      $("f-text").focus();
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    drawMap();
    drawTime();
    drawDtypes();
    if (shownCall >= 0) openDetail(shownCall);
  });
}

async function start() {
  if (!("DecompressionStream" in window)) throw new Error("this browser is too old: Chromium 92, Firefox 113 or Safari 16.4 and later show this page");
  calls = readCalls(JSON.parse(await unpack(taken("data"))));
  startTable();
  startMap();
  startPage();
  document.documentElement.dataset.ready = "table";
  // After the first picture: unpacking the plotting library takes a moment.
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  await startCharts();
  document.documentElement.dataset.ready = "all";
}

start().catch((error) => trouble(`The report cannot be drawn: ${error.message}`));
