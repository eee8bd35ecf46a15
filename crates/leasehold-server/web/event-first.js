// Runs before anything of the buyer's page is painted: whoever has something in this browser gets the room for it at once,
// and nothing jumps when it is shown. A script and no module, because modules wait until the page was painted.

{
  let kept = null;
  try {
    kept = localStorage.getItem(`leasehold:cart:${location.pathname.split('/')[2]}`);
  } catch {
    // A browser that keeps nothing has nothing to make room for.
  }
  document.documentElement.toggleAttribute('data-has', kept !== null);
}
