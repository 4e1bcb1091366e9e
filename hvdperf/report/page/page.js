'use strict';

/* What the scripts of the page share; each adds its own. They are run in the order of inline.py. */
const page = {};

{
    const SHOWN_MS = 4000;
    let timer = 0;

    /* Tells what has happened, to eyes and to screen readers. */
    page.say = text => {
        const place = document.getElementById('pageSaid');
        place.textContent = text;
        clearTimeout(timer);
        timer = setTimeout(() => { place.textContent = ''; }, SHOWN_MS);
    };

    /* JSON that lies in an element of the page. */
    page.json = element => JSON.parse(element.textContent);

    page.idle = window.requestIdleCallback
        ? work => requestIdleCallback(work, {timeout: 300})
        : work => setTimeout(work, 10);
}
