// The search of the site runs in a worker, which browsers do not start from a page that is opened from a folder. There,
// an invisible frame takes its place; on a server nothing is changed. The theme knows IFrameWorker by its name.
if (location.protocol === "file:") {
  window.IFrameWorker = class IFrameWorker extends EventTarget {
    #waiting = [];
    #inside;

    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      const inside = frame.contentWindow;
      const script = inside.document.createElement("script");
      script.src = String(new URL(url, location.href));
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...urls) => urls.reduce((before, each) => before.then(() => load(inside, each)), Promise.resolve());
      script.onload = () => {
        this.#inside = inside;
        this.#waiting.splice(0).forEach((data) => this.postMessage(data));
      };
      inside.document.head.append(script);
    }

    postMessage(data) {
      if (this.#inside) this.#inside.dispatchEvent(new this.#inside.MessageEvent("message", { data }));
      else this.#waiting.push(data);
    }
  };

  window.Worker = window.IFrameWorker;
}

function load(inside, url) {
  return new Promise((resolve, reject) => {
    const script = inside.document.createElement("script");
    Object.assign(script, { src: url, onload: resolve, onerror: reject });
    inside.document.head.append(script);
  });
}
