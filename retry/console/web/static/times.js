// Times: in the zone of who looks, with UTC beside them, or in UTC alone; how long ago that is is true also of a page that is not
// kept fresh, by the clock of the console. Without this every time is in UTC, as the console has written it.
(() => {
  "use strict";
  const IN_UTC = "retry-times-utc", OWN_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  const isZoneUtc = /^(UTC|GMT|Etc\/(UTC|GMT|UCT|Universal|Zulu|Greenwich))$/.test(OWN_ZONE);
  const isLocal = () => !isZoneUtc && localStorage.getItem(IN_UTC) === null;
  const ahead = Number(document.documentElement.dataset.nowMs) - Date.now();
  const UNITS = [[86_400, "d"], [3_600, "h"], [60, "min"], [1, "s"]];
  const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  const zone = Intl.DateTimeFormat("en", { timeZoneName: "short" });

  function duration(seconds, brief) {
    const n = UNITS.findIndex(([unit]) => seconds >= unit), [unit, name] = UNITS[n], [next, nextName] = UNITS[n + 1] || [unit];
    const rest = brief ? 0 : Math.floor((seconds % unit) / next);
    return `${Math.floor(seconds / unit)} ${name}${rest ? ` ${rest} ${nextName}` : ""}`;
  }

  function age(at, brief) {
    const apart = Math.trunc((Date.now() + ahead - at) / 1000);
    return apart === 0 ? "now" : apart > 0 ? `${duration(apart, brief)} ago` : `in ${duration(-apart, brief)}`;
  }

  // A moment whose fields in UTC are those that it has here.
  const shifted = (at) => new Date(isLocal() ? at - new Date(at).getTimezoneOffset() * 60_000 : at);
  const day = (date) => date.toISOString().slice(0, 10), time = (date) => date.toISOString().slice(11, 19);
  const minute = (date) => `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]} ${time(date).slice(0, 5)}`;
  const briefly = (date, today) => day(date) === day(today) ? time(date) : minute(date);

  function fully(at) {
    const local = shifted(at), name = isLocal() ? zone.formatToParts(at).find((part) => part.type === "timeZoneName").value : "UTC";
    return `${day(local)} ${time(local)} ${name}`;
  }

  function besides(at) {
    const utc = new Date(at);
    return isLocal() ? [`${day(shifted(at)) === day(utc) ? time(utc) : minute(utc)} UTC`] : [];
  }

  function writeTime(element) {
    const at = Date.parse(element.dateTime), as = element.dataset.as;
    if (Number.isNaN(at)) return;
    const now = Date.now() + ahead, aside = "age" in element.dataset ? [...besides(at), age(at)] : besides(at);
    const forms = { full: () => fully(at), brief: () => briefly(shifted(at), shifted(now)), minute: () => minute(shifted(at)) };
    const text = as in forms ? forms[as]() : age(at, as === "ago-brief");
    if (!["full", "brief"].includes(as)) aside.length = 0;
    const whole = aside.length ? `${text} (${aside.join(", ")})` : text;
    if (as !== "full") element.title = [fully(at), ...besides(at)].join(", ");
    if (element.textContent === whole) return;
    element.replaceChildren(text);
    if (!aside.length) return;
    const small = document.createElement("small");
    small.textContent = `(${aside.join(", ")})`;
    element.append(" ", small);
  }

  function writeTimes() {
    document.documentElement.dataset.times = isLocal() ? "local" : "utc";
    document.querySelectorAll("time[datetime][data-as]").forEach(writeTime);
  }

  const timesButton = document.querySelector("#times-button");

  function writeTimesButton() {
    timesButton.textContent = isLocal() ? "Times in UTC" : "Times in my zone";
  }

  if (timesButton && !isZoneUtc) {
    timesButton.hidden = false;
    writeTimesButton();
    timesButton.addEventListener("click", () => {
      if (isLocal()) localStorage.setItem(IN_UTC, "1");
      else localStorage.removeItem(IN_UTC);
      writeTimesButton();
      writeTimes();
      document.dispatchEvent(new Event("times:changed"));
    });
  }

  setInterval(writeTimes, 10_000);
  writeTimes();
  // The hour and minute of a moment, as the axis of a chart has it.
  window.times = { writeTimes, isLocal, hour: (at) => time(shifted(at)).slice(0, 5) };
})();
