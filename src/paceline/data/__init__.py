"""What the data of more than one task needs: archives, downloads, cards, order, reading ahead."""
