// A page opened from a file may not start web workers, and the search runs in one.
// There, and only there, this runs the worker's script in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inside = frame.contentWindow;
      // As with a worker, messages are copies and answers come later. With shared objects, the
      // worker's script changes the page's query, and the search empties its field at every key.
      inside.postMessage = (message) => {
        const data = structuredClone(message);
        setTimeout(() => {
          const event = new MessageEvent("message", { data });
          this.dispatchEvent(event);
          if (this.onmessage) this.onmessage(event);
        }, 0);
      };
      this.frame = frame;
      this.ready = new Promise((done) => {
        const script = inside.document.createElement("script");
        script.src = new URL(url, location.href);
        script.onload = () => done(inside);
        inside.document.body.appendChild(script);
      });
    }
    postMessage(message) {
      const data = structuredClone(message);
      this.ready.then((inside) => {
        const event = new inside.MessageEvent("message", { data });
        inside.dispatchEvent(event);
      });
    }
    terminate() {
      this.frame.remove();
    }
  };
}
