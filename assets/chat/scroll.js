// Keeps the end in sight while the reader is at the end, and leaves them alone otherwise.

const AT_END_PX = 24;

export class Scroll {
  constructor(scroller, content) {
    this.scroller = scroller;
    this.isFollowing = true;
    this.lastTop = 0;
    this.onChange = () => {};
    this.onTop = () => {};
    scroller.addEventListener("scroll", () => this.onScroll(), { passive: true });
    scroller.addEventListener("wheel", (event) => event.deltaY < 0 && this.leave(), { passive: true });
    const observer = new ResizeObserver(() => this.settle());
    observer.observe(content);
    observer.observe(scroller);
  }

  get distance() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight;
  }

  // The reader moved, or the content did: only the reader moves up without the end coming into sight.
  onScroll() {
    const { scrollTop } = this.scroller;
    if (scrollTop < this.lastTop - 1 && this.distance > 1) this.follow(false);
    else if (scrollTop > this.lastTop && this.distance <= AT_END_PX) this.follow(true);
    this.lastTop = scrollTop;
    if (scrollTop < this.scroller.clientHeight / 2) this.onTop();
    this.onChange();
  }

  // A turn of the wheel comes before the scroll it causes.
  leave() {
    if (this.scroller.scrollTop > 0) this.follow(false);
  }

  follow(isFollowing) {
    if (this.isFollowing === isFollowing) return;
    this.isFollowing = isFollowing;
    this.onChange();
  }

  // After anything that changes heights.
  settle() {
    if (this.isFollowing) this.toEnd();
    else this.onChange();
  }

  toEnd() {
    this.isFollowing = true;
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.lastTop = this.scroller.scrollTop;
    this.onChange();
  }

  // Changes the content and leaves what the reader sees where it is.
  keeping(element, change) {
    const { style } = this.scroller;
    style.overflowAnchor = "none"; // the browser would move the same way a second time
    const before = element.getBoundingClientRect().top;
    change();
    if (!this.isFollowing) {
      this.scroller.scrollTop += element.getBoundingClientRect().top - before;
      this.lastTop = this.scroller.scrollTop;
    }
    requestAnimationFrame(() => (style.overflowAnchor = ""));
  }
}
