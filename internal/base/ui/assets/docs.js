// What the pages of the documentation add with JavaScript.
