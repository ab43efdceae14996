// Browsers give no workers to a page that is opened from disk: there, the search runs in a hidden frame.
// The theme looks for the name IFrameWorker, and for these words in this file's name.
window.IFrameWorker = class extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    this.inside = new Promise((resolve) => {
      frame.addEventListener("load", () => {
        const inside = frame.contentWindow;
        const run = (source) =>
          new Promise((loaded, failed) => {
            const script = inside.document.createElement("script");
            script.src = source;
            script.onload = loaded;
            script.onerror = failed;
            inside.document.body.append(script);
          });
        inside.importScripts = async (...sources) => {
          for (const source of sources) await run(source);
        };
        inside.postMessage = (data) => {
          const message = new MessageEvent("message", { data });
          this.dispatchEvent(message);
          this.onmessage?.(message);
        };
        run(url).then(() => resolve(inside));
      }, { once: true });
    });
    document.body.append(frame);
  }

  async postMessage(data) {
    const inside = await this.inside;
    inside.dispatchEvent(new inside.MessageEvent("message", { data: structuredClone(data) }));
  }
};
if (location.protocol === "file:") window.Worker = window.IFrameWorker;
