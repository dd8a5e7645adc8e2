// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The search of the theme runs in a worker, which browsers refuse to start from a page that was opened as a file. Then
// this class takes the place of Worker: it runs the script in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.scope = frame.contentWindow;
      const own = this;
      this.scope.document.open();
      // In a worker, postMessage sends to the page, and importScripts returns when the scripts have run.
      this.scope.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        own.dispatchEvent(event);
        own.onmessage?.(event);
      };
      this.scope.importScripts = (...urls) => urls.reduce((before, one) => before.then(() => new Promise((resolve) => {
        const script = own.scope.document.createElement("script");
        script.src = one;
        script.onload = resolve;
        own.scope.document.body.append(script);
      })), Promise.resolve());
      this.scope.document.write(`<body><script src="${url}"></script></body>`);
      // Only now: the empty frame has caused a first event.
      this.ready = new Promise((resolve) => frame.addEventListener("load", resolve, { once: true }));
      this.scope.document.close();
    }
    postMessage(data) {
      this.ready.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
}
