"""The paper's classic control: MountainCar, Pendulum and Acrobot, each with either kind of actions."""
