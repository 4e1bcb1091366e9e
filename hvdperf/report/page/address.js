'use strict';

/* What is chosen, in the part of the address after #, so that a link shows the same.

   Either the name of a place in the page, or choices such as #text=vgg_16_s&at=Section-scaling. */
{
    const PLACE = 'at';

    function read() {
        const text = location.hash.slice(1);
        if (!text.includes('=')) {
            return {};
        }
        return Object.fromEntries(new URLSearchParams(text));
    }

    function write(state) {
        const kept = Object.entries(state).filter(([, value]) => value);
        const text = new URLSearchParams(kept).toString();
        history.replaceState(null, '', text ? `#${text}` : location.pathname + location.search);
    }

    page.address = {
        read,
        /* Changes some of it; empty values are left out. */
        write: changes => write({...read(), ...changes}),
    };

    /* Opens what is folded around a place. */
    function unfold(place) {
        let fold = document.getElementById(place)?.closest('details');
        while (fold) {
            fold.open = true;
            fold = fold.parentElement.closest('details');
        }
    }

    function go(place) {
        unfold(place);
        document.getElementById(place)?.scrollIntoView();
    }

    page.places = {
        start() {
            document.addEventListener('click', event => {
                const link = event.target.closest('a[href^="#"]');
                if (!link) {
                    return;
                }
                const place = link.getAttribute('href').slice(1);
                unfold(place);
                // Choices would be lost with the address; without any, the browser does it.
                if (location.hash.includes('=') && !place.includes('=')) {
                    event.preventDefault();
                    page.address.write({[PLACE]: place});
                    go(place);
                }
            });
            this.follow();
        },
        /* What the address says. */
        follow() {
            go(read()[PLACE] ?? location.hash.slice(1));
        },
    };
}
