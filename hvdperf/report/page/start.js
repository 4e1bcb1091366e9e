'use strict';

/* Everything is here: the page begins to answer, and then to draw. */
{
    const root = document.documentElement;
    const top = document.querySelector('.top');

    function room() {
        const sticks = getComputedStyle(top).position === 'sticky';
        root.style.setProperty('--top', `${sticks ? top.offsetHeight : 0}px`);
    }

    document.getElementById('pagePrint').addEventListener('click', async () => {
        page.theme.paper(true);
        await page.plots.all();
        print();
    });
    addEventListener('resize', room);
    room();

    page.sorting?.start();
    page.filters?.start();
    page.downloads.start();
    const canDraw = page.plots.start();
    page.places.start();
    addEventListener('hashchange', () => {
        page.filters?.follow();
        page.places.follow();
    });
    // Paper does not wait.
    canDraw.then(() => { root.dataset.ready = 'true'; });
}
