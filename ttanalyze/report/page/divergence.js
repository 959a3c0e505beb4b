function showDivergence() {}
