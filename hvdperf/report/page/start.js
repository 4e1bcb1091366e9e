'use strict';

/* Everything is here: the page begins to answer, and then to draw. */
{
    const root = document.documentElement;
    const top = document.querySelector('.top');
    const links = [...document.querySelectorAll('nav a')];
    const theme = document.getElementById('pageTheme');

    function room() {
        const sticks = getComputedStyle(top).position === 'sticky';
        root.style.setProperty('--top', `${sticks ? top.offsetHeight : 0}px`);
    }

    function themed() {
        theme.setAttribute('aria-pressed', String(page.theme.name === 'dark'));
    }

    /* The section that is being read is marked in the list of sections. */
    function followReading() {
        const places = new Map(links.map(link => [link.getAttribute('href').slice(1), link]));
        const observer = new IntersectionObserver(entries => {
            for (const {target, isIntersecting} of entries) {
                if (isIntersecting) {
                    links.forEach(link => link.removeAttribute('aria-current'));
                    places.get(target.id).setAttribute('aria-current', 'true');
                }
            }
        }, {rootMargin: '-30% 0px -65% 0px'});
        for (const name of places.keys()) {
            observer.observe(document.getElementById(name));
        }
    }

    theme.addEventListener('click', () => page.theme.toggle());
    page.theme.onChange(themed);
    themed();
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
    followReading();
    addEventListener('hashchange', () => {
        page.sorting?.follow();
        page.filters?.follow();
        page.places.follow();
    });
    // Paper does not wait.
    canDraw.then(() => { root.dataset.ready = 'true'; });
}
